"""What a round does where the memory is short."""

import pytest

from superfluid.engine.fake import FakeBackend
from superfluid.engine.fake_model import FakeModel
from superfluid.engine.rounds import Rounds
from superfluid.engine.threads import Fixed
from superfluid.engine.tiers import Tiers
from superfluid.protocol.codes import Fault, Finish
from superfluid.protocol.records import GenParams
from superfluid.protocol.ticks import IN_HOST, LaneStart, Tick, pack, unpack

PROMPT = list(range(100, 120))


class Bench:
    """Rounds over a fake backend that has room for so many tokens in a decode, one less for each sequence in use."""

    def __init__(self, room, sequences=4):
        self.model = FakeModel(room=room)
        self.backend = FakeBackend(self.model, 256, sequences, lambda seconds: None)
        self.rounds = Rounds(
            self.backend, Tiers(self.backend, 1 << 20), Fixed(1), lambda drawn: None, lambda n: False
        )
        self.kv = {}

    def run(self, *prompts, first=1, limit=3):
        starts = [LaneStart(n, n, pack(tokens), GenParams(), 0, limit) for n, tokens in enumerate(prompts, first)]
        outcome = self.rounds.run(Tick(1, 20, 512, 1000, tuple(starts), tuple(start.lane for start in starts), ()))
        self.rounds.check()
        self.kv |= {change.session: change.tier for change in outcome.kv}
        return outcome.lanes

    def right(self, prompt, lane):
        tokens = list(prompt)
        for token in unpack(lane.drawn):
            assert token == self.model.oracle(tokens, None)
            tokens.append(token)
        return lane.finish == Finish.LENGTH


def test_a_prompt_goes_in_by_halves():
    bench = Bench(room=7)
    (lane,) = bench.run(PROMPT)
    assert bench.right(PROMPT, lane)
    assert lane.prefilled == len(PROMPT)


def test_lanes_are_tried_alone():
    bench = Bench(room=22)
    lanes = bench.run(PROMPT, PROMPT[::-1])
    assert bench.right(PROMPT, lanes[0])
    assert bench.right(PROMPT[::-1], lanes[1])


def test_an_idle_sequence_goes_first_and_is_not_lost():
    bench = Bench(room=20)
    bench.run(PROMPT)
    (lane,) = bench.run(PROMPT[::-1], first=2)
    assert bench.right(PROMPT[::-1], lane)
    assert bench.kv[1] == IN_HOST
    assert bench.run(PROMPT, first=1)[0].warm == len(PROMPT) - 1


@pytest.mark.parametrize("limit", [0, 3])
def test_what_fits_no_token_fails_alone(limit):
    bench = Bench(room=1)
    (lane,) = bench.run(PROMPT, limit=limit)
    assert (lane.finish, lane.fault) == (Finish.ERROR, Fault.OUT_OF_MEMORY)

    assert bench.backend.last(0) == -1


class Stopping(Bench):
    """Asked in the middle of rounds with a prompt to give them up, always."""

    def __init__(self, room=4000, sequences=4):
        super().__init__(room, sequences)
        self.asked = 0
        self.backend = FakeBackend(self.model, 1024, sequences, lambda seconds: None)
        self.tiers = Tiers(self.backend, 1 << 20)
        self.rounds = Rounds(self.backend, self.tiers, Fixed(1), lambda drawn: None, self.stop)

    def stop(self, number, at_once=False):
        self.asked += at_once
        return at_once


def test_a_round_that_is_given_up_leaves_no_trace_and_the_next_one_goes_on():
    bench = Stopping()
    prompt = [7 + n % 50 for n in range(200)]
    (lane,) = bench.run(prompt)
    assert bench.asked == 1, "two rounds in a row were to be given up"
    assert bench.right(prompt, lane)
    assert lane.prefilled == len(prompt)


def test_lanes_that_decode_in_a_round_that_is_given_up_draw_the_same():
    bench = Stopping()
    short, long = [7, 8, 9], [7 + n % 50 for n in range(200)]
    starts = [LaneStart(1, 1, pack(short), GenParams(), 0, 30), LaneStart(2, 2, pack(long), GenParams(), 0, 3)]
    first = bench.rounds.run(Tick(1, 4, 512, 1000, tuple(starts[:1]), (1,), ()))
    second = bench.rounds.run(Tick(2, 40, 512, 1000, tuple(starts[1:]), (1, 2), ()))
    assert second.lanes[1].finish != Finish.OPEN
    third = bench.rounds.run(Tick(3, 40, 512, 1000, (), (1,), ()))
    bench.rounds.check()
    assert bench.asked == 1
    drawn = [token for outcome in (first, second, third) for token in unpack(outcome.lanes[0].drawn)]
    tokens = list(short)
    for token in drawn:
        assert token == bench.model.oracle(tokens, None)
        tokens.append(token)
    assert len(drawn) == 30 or third.lanes[0].finish == Finish.END_OF_TURN
    assert bench.right(long, second.lanes[1])


def test_whose_round_was_given_up_gets_its_next_one_whoever_runs_in_between():
    """Chats that come one after another would stop a prompt of the background for ever."""
    bench = Stopping()
    rounds = Rounds(bench.backend, bench.tiers, Fixed(1), lambda drawn: None, lambda number, at_once=False: True)
    long = [7 + n % 50 for n in range(200)]
    computed = 0
    starts = [LaneStart(1, 1, pack(long), GenParams(), 0, 3)]
    for number in range(2, 6):
        tick = rounds.run(Tick(2 * number, 1, 100, 1000, tuple(starts), (1,), ()))
        computed += tick.lanes[0].prefilled
        starts = []
        chat = LaneStart(number, number, pack([3, number]), GenParams(), 0, 1)
        assert rounds.run(Tick(2 * number + 1, 1, 100, 1000, (chat,), (number,), ())).lanes[0].finish == Finish.LENGTH
    assert computed == len(long)


def test_short_rounds_are_not_given_up():
    bench = Stopping()
    bench.run(PROMPT)
    assert bench.asked == 0


def test_what_lost_its_end_waits_for_no_decode():
    """A round after it may be given up: no KV has to move."""
    bench = Stopping()
    prompt = [7 + n % 50 for n in range(200)]
    bench.run(prompt[:40], limit=0)
    bench.tiers.shift(1, 30, 10)
    (lane,) = bench.run(prompt, first=2)
    assert bench.asked == 1
    assert bench.right(prompt, lane)


class Breathing(Bench):
    """A round takes `delay` seconds a row, by a clock of its own; `signs` are the signs of life given so far."""

    def __init__(self):
        super().__init__(room=4000)
        self.now = 1000.0
        self.delay = 0.001
        self.signs = 0
        self.backend = FakeBackend(FakeModel(delay_us=1000), 1024, 4, self.sleep)
        self.rounds = Rounds(
            self.backend,
            Tiers(self.backend, 1 << 20),
            Fixed(1),
            lambda drawn: None,
            lambda n, at_once=False: False,
            self.sign,
            clock=lambda: self.now,
        )

    def sleep(self, seconds):
        self.now += seconds * self.delay / 0.001

    def sign(self):
        self.signs += 1

    def signs_of_a_draw(self, lane):
        """Signs in a tick of one round, which draws a token."""
        before = self.signs
        starts = () if lane in self.rounds.lanes else (LaneStart(lane, lane, pack([7]), GenParams(), 0, 100),)
        self.rounds.run(Tick(1, 1, 512, 1000, starts, (lane,), ()))
        return self.signs - before


def test_signs_of_life_come_from_every_round_that_is_not_known_to_be_quick():
    bench = Breathing()
    assert bench.signs_of_a_draw(1), "nothing is known of the first one"
    assert not bench.signs_of_a_draw(1)
    bench.now += 60
    assert bench.signs_of_a_draw(1), "its weights may have left memory"
    assert not bench.signs_of_a_draw(1)
    bench.run([7 + n % 50 for n in range(200)], first=2, limit=1)
    assert bench.signs > 200, "it is long by its tokens"
    bench.delay = 2.0
    assert not bench.signs_of_a_draw(1), "who could have known"
    assert bench.signs_of_a_draw(1)
    bench.delay = 0.001
    assert bench.signs_of_a_draw(1)
    assert not bench.signs_of_a_draw(1)


def test_a_round_with_a_shift_gives_signs_and_is_not_given_up():
    bench = Breathing()
    prompt = [7 + n % 50 for n in range(200)]
    bench.run(prompt[:100], limit=0)
    bench.now += 60
    bench.rounds._stop = lambda n, at_once=False: at_once
    bench.rounds._tiers.shift(1, 30, 10)
    bench.signs = 0
    (lane,) = bench.run([*prompt[:30], *prompt[40:], *prompt], first=1, limit=3)
    assert bench.right([*prompt[:30], *prompt[40:], *prompt], lane)
    assert bench.signs
