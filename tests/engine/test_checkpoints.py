"""A fork or an edit a few turns back starts from there, also where layers keep no past."""

from array import array

import pytest

from superfluid.engine.backend import Decoded, Stretch
from superfluid.engine.fake import FakeBackend
from superfluid.engine.fake_model import FakeModel
from superfluid.engine.host import CHECKPOINTS, HostCopies, HostCopy
from superfluid.engine.tiers import Tiers
from superfluid.protocol.ticks import Park
from tests.engine import tiny_recurrent
from tests.engine.process import worker
from tests.engine.test_llama import gemma

A = array("I", range(100, 200))
B = array("I", range(300, 320))

KINDS = [
    pytest.param({"window": 4}, id="window"),
    pytest.param({"recurrent": 1}, id="recurrent"),
    pytest.param({"recurrent": 1, "window": 4}, id="both"),
]


class Bench:
    """Tiers over a fake backend, with lanes that compute their tokens at once."""

    def __init__(self, sequences=3, host_bytes=1 << 20, **model):
        self.backend = FakeBackend(FakeModel(**model), 256, sequences, lambda seconds: None)
        self.tiers = Tiers(self.backend, host_bytes)
        self.lane = 0
        self.running = set()

    def hold(self, session, tokens, *, release=True):
        """Let a lane of `session` compute `tokens`: how many were there."""
        self.lane += 1
        slot = self.tiers.acquire(self.lane, session, tokens, len(tokens), {self.lane, *self.running})
        warm = len(slot.tokens)
        if tokens[warm:]:
            assert self.backend.decode([Stretch(slot.number, warm, tokens[warm:], True)]) is Decoded.DONE
            self.tiers.settle()
            self.tiers.extend(slot, tokens[warm:])
            assert self.backend.seen(0) == tokens
        if release:
            self.tiers.release(self.lane)
            self.tiers.check(self.running)
        return warm


def turns(bench, session=1, ends=(20, 40, 60, 80)):
    for end in ends:
        bench.hold(session, A[:end])


@pytest.mark.parametrize("model", KINDS)
class TestFake:
    def test_an_edit_goes_back_to_the_turn_s_beginning(self, model):
        bench = Bench(**model)
        turns(bench)
        assert bench.hold(1, A[:40] + B) == 40
        assert bench.hold(1, A[:45] + B) == 40
        assert bench.hold(1, A[:20] + B) == 20

    def test_a_fork_leaves_its_parent_alone(self, model):
        bench = Bench(**model)
        turns(bench)
        assert bench.hold(2, A[:50] + B) == 40
        assert bench.hold(1, A) == 80

    def test_a_fork_where_there_is_one_sequence(self, model):
        bench = Bench(sequences=1, **model)
        turns(bench)
        assert bench.hold(2, A[:50] + B) == 40
        assert bench.hold(1, A) == 80

    def test_from_host_memory(self, model):
        bench = Bench(sequences=1, **model)
        turns(bench)
        bench.hold(2, B)
        assert bench.hold(1, A[:50] + B) == 40

    def test_of_a_running_lane(self, model):
        bench = Bench(**model)
        turns(bench)
        bench.hold(1, A[:90], release=False)
        bench.running = {bench.lane}
        assert bench.hold(2, A[:50] + B) == 40

    def test_where_a_copy_waits_it_is_another_way(self, model):
        bench = Bench(**model)
        turns(bench)
        # Session 2 has all of it, and its copy waits, since nothing had to be decoded.
        assert bench.hold(2, A[:80]) == 80
        assert bench.hold(2, A[:50] + B) in (0, 40)
        turns(bench)
        assert bench.hold(3, A[:80]) == 80
        assert bench.hold(1, A[:50] + A[:20]) in (0, 40)

    def test_where_none_is_left_it_is_computed(self, model):
        bench = Bench(host_bytes=0, **model)
        turns(bench)
        assert bench.hold(1, A[:40] + B) == 0

    def test_a_failing_one_is_a_miss(self, model):
        bench = Bench(restore_fails_every=1, **model)
        turns(bench)
        assert bench.hold(1, A[:40] + B) == 0

    def test_forgetting_takes_them(self, model):
        bench = Bench(**model)
        turns(bench)
        bench.hold(2, A)
        bench.tiers.forget([1])
        # Session 2's own is at its end.
        assert bench.hold(3, A[:50] + B) == 0


def test_plain_attention_needs_none():
    bench = Bench()
    turns(bench)
    assert len(bench.tiers.host.checkpoints) == 0
    assert bench.hold(1, A[:33] + B) == 33


class TestBounds:
    def add(self, copies, session, length, size=10):
        copies.add(HostCopy(session, A[:length], bytes(size), 0, partial=True))
        copies.check()

    def lengths(self, copies):
        return sorted(len(copy.tokens) for _, copy in copies.checkpoints.ranked(A))

    def test_of_a_session_so_many_are_kept_spread(self):
        copies = HostCopies(1 << 20)
        for length in range(10, 91, 10):
            self.add(copies, 1, length)
        assert len(copies.checkpoints) == CHECKPOINTS
        self.add(copies, 1, 95)
        self.add(copies, 1, 96)
        kept = self.lengths(copies)
        assert len(kept) == CHECKPOINTS
        assert kept[-1] == 96
        assert 95 not in kept

    def test_they_take_a_quarter_of_the_memory(self):
        copies = HostCopies(400)
        for length in range(10, 91, 10):
            self.add(copies, length, length, size=30)
        assert self.lengths(copies) == [70, 80, 90]

    def test_whole_copies_are_counted_apart(self):
        copies = HostCopies(400)
        self.add(copies, 1, 10)
        copies.add(HostCopy(1, A, bytes(10), 0))
        assert (len(copies), len(list(copies)), len(copies.checkpoints)) == (1, 1, 1)
        copies.forget({1})
        assert (copies.bytes, len(copies), len(copies.checkpoints)) == (0, 0, 0)


@pytest.fixture(scope="module", params=[False, True], ids=["mamba", "jamba"])
def recurrent(request, tmp_path_factory):
    path = tiny_recurrent.write(tmp_path_factory.mktemp("tiny") / "tiny.gguf", hybrid=request.param)
    park = str(tmp_path_factory.mktemp("park"))
    with worker(model=path, lanes=1, spare=2, context=512, park=park, park_bytes=1 << 30) as running:
        yield running


class TestRecurrent:
    """Random tiny models, in the real library: states that were a little wrong would draw other tokens."""

    PROMPT = tuple(3 + place * 37 % 290 for place in range(60))

    @pytest.mark.parametrize("way", ["in place", "a fork", "from host memory"])
    def test_a_few_turns_back(self, recurrent, way):
        recurrent.forget(*range(1, 30))
        recurrent.tick([])
        tokens, ends = list(self.PROMPT), []
        for question in range(4):
            tokens += recurrent.generate(1, tokens, 8).tokens
            ends.append(len(tokens) - 1)
            tokens += [40 + question, 50, 60]
        if way == "from host memory":
            for other in range(2, 6):
                recurrent.generate(other, [70 + other] * 9, 2)
            assert recurrent.kv[1][0] == 2
        edited = [*tokens[: ends[1] + 2], 80, 81, 82]
        session = 9 if way == "a fork" else 1
        reply = recurrent.generate(session, edited, 12)
        assert reply.warm == ends[1]
        recurrent.forget(*range(1, 30))
        fresh = recurrent.generate(20, edited, 12)
        assert fresh.warm == 0
        assert fresh.tokens == reply.tokens

    def test_they_park_like_others(self, recurrent):
        recurrent.forget(*range(1, 30))
        recurrent.generate(1, list(self.PROMPT), 8)
        recurrent.send(Park(60_000))
        assert recurrent.receive().sessions == 1
        recurrent.forget(1)


@pytest.mark.heavy
def test_a_few_turns_back_behind_a_sliding_window(tmp_path):
    """Gemma 3: forks behind its window of 512 tokens go on as a session does that never went further.

    Computing the same tokens in other batches moves this model's logits more than any mistake that one could hope
    to see, so both compute them in the same ones.
    """
    model = gemma(tmp_path)
    turns = [[2000 + 400 * turn + 37 * place for place in range(10)] * 30 for turn in range(5)]

    def converse(running, count):
        """So many turns of session 1: its tokens, and how many were held at the end of each."""
        tokens, ends = [], []
        for words in turns[:count]:
            tokens += words
            tokens += running.generate(1, tokens, 2).tokens
            ends.append(len(tokens) - 1)
        return tokens, ends

    with (
        worker(model=model, context=2048, lanes=1, spare=2, threads=1) as running,
        worker(model=model, context=2048, lanes=1, spare=0, threads=1) as straight,
    ):
        tokens, ends = converse(running, len(turns))
        for back in (3, 2, 1):
            question = [*tokens[: ends[back]], 77, *turns[back][:7]]
            fork = running.generate(10 + back, question, 6)
            assert fork.warm == ends[back]
            assert converse(straight, back + 1) == (tokens[: ends[back] + 1], ends[: back + 1])
            expected = straight.generate(1, question, 6)
            assert (fork.warm, fork.tokens) == (expected.warm, expected.tokens)
            running.forget(10 + back)
            straight.forget(1)
        # The parent goes on where it was.
        assert running.generate(1, [*tokens, 5, 6], 2).warm == len(tokens) - 1
