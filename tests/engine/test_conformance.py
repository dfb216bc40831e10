"""What the worker promises on its socket, held over the fake and over llama.cpp alike."""

import pytest

from superfluid.protocol.codes import Fault, Finish
from superfluid.protocol.records import GenParams
from superfluid.protocol.ticks import (
    ON_DISK,
    Drawn,
    Interrupt,
    KvChange,
    LaneOptions,
    LaneStart,
    Park,
    Parked,
    Ready,
    Shift,
    Tick,
    pack,
    unpack,
)
from tests.engine.process import Worker, worker

SAMPLED = GenParams(temperature=0.9, top_p=0.95, min_p=0.01, top_k=40, seed=7)
PROMPT = list(range(1000, 1060))


@pytest.fixture(params=["fake", "llama"], scope="module")
def backend(request):
    return {"fake": ""} if request.param == "fake" else {}


@pytest.fixture(scope="module")
def shared(backend):
    """One worker for the tests that need no settings of their own; their sessions and prompts differ."""
    with worker(**backend) as running:
        yield running


def tokens_of(outcome):
    return sum(len(unpack(lane.drawn)) for lane in outcome.lanes)


class TestDrawing:
    def test_a_lane_ends_at_its_limit(self, shared):
        reply = shared.generate(1, PROMPT, 12)
        assert (len(reply.tokens), reply.finish, reply.warm, reply.prefilled) == (12, Finish.LENGTH, 0, len(PROMPT))
        assert shared.kv[1] == (1, len(PROMPT) + 11)

    def test_rounds_of_a_tick_are_bounded(self, shared):
        start = shared.start(2, PROMPT[::-1], 20)
        outcome, _ = shared.tick([start.lane], [start], rounds=3)
        assert (outcome.rounds, tokens_of(outcome), outcome.lanes[0].finish) == (3, 3, Finish.OPEN)
        outcome, _ = shared.tick([start.lane], rounds=2)
        assert (outcome.rounds, tokens_of(outcome), outcome.decode_tokens, outcome.prefill_tokens) == (2, 2, 2, 0)
        outcome, _ = shared.tick([], ends=[start.lane])
        assert outcome.rounds == 0

    def test_a_tick_ends_with_the_round_that_ends_a_lane(self, shared):
        short, long = shared.start(2, PROMPT[1:], 3), shared.start(3, PROMPT[2:], 9)
        outcome, _ = shared.tick([short.lane, long.lane], [short, long], rounds=50)
        assert [lane.finish for lane in outcome.lanes] == [Finish.LENGTH, Finish.OPEN]
        assert (outcome.rounds, tokens_of(outcome)) == (3, 6)
        assert shared.finish([long.lane])[0].finish == Finish.LENGTH

    def test_a_spent_budget_still_allows_one_round(self, shared):
        start = shared.start(3, PROMPT[5:], 20)
        outcome, _ = shared.tick([start.lane], [start], rounds=10, budget_ms=0, chunk=16)
        assert (outcome.rounds, outcome.lanes[0].prefilled, outcome.lanes[0].remaining) == (1, 16, 39)
        shared.tick([], ends=[start.lane])

    def test_a_prompt_goes_in_by_chunks_best_lane_first(self, shared):
        first, second = shared.start(4, PROMPT[10:50], 5), shared.start(5, PROMPT[20:50], 5)
        run = [second.lane, first.lane]
        outcome, _ = shared.tick(run, [first, second], rounds=1, chunk=32)
        assert [(lane.lane, lane.prefilled, lane.remaining) for lane in outcome.lanes] == [
            (second.lane, 30, 0),
            (first.lane, 2, 38),
        ]
        assert (outcome.prefill_tokens, outcome.decode_tokens) == (32, 0)
        outcome, _ = shared.tick(run, rounds=1, chunk=32)
        # Beside a lane that decodes, a prompt's first token goes into that lane's pass.
        assert [(lane.prefilled, lane.remaining) for lane in outcome.lanes] == [(0, 0), (33, 5)]
        assert [lane.lane for lane in outcome.lanes if lane.drawn] == [second.lane]
        shared.tick([], ends=run)

    def test_a_lane_that_is_not_run_waits(self, shared):
        waiting, running = shared.start(6, PROMPT[3:], 4), shared.start(7, PROMPT[4:], 4)
        outcome, _ = shared.tick([running.lane], [waiting, running])
        assert [lane.lane for lane in outcome.lanes] == [running.lane]
        outcome, _ = shared.tick([waiting.lane])
        assert [(lane.lane, lane.finish) for lane in outcome.lanes] == [(waiting.lane, Finish.LENGTH)]

    def test_no_draws_are_wanted_where_only_kv_is(self, shared):
        start = shared.start(8, [*PROMPT[6:], 9], 0)
        outcome, drawn = shared.tick([start.lane], [start])
        (lane,) = outcome.lanes
        assert (drawn, lane.finish, lane.prefilled, shared.kv[8]) == ([], Finish.LENGTH, 55, (1, 55))
        again = shared.generate(8, [*PROMPT[6:], 9], 0)
        assert (again.finish, again.warm, again.prefilled) == (Finish.LENGTH, 55, 0)

    def test_all_lanes_finished_ends_the_tick(self, shared):
        start = shared.start(9, PROMPT[7:], 2)
        outcome, _ = shared.tick([start.lane], [start], rounds=1000)
        assert outcome.rounds == 2

    def test_tokens_at_equal_seeds_are_equal_and_at_others_not(self, shared):
        def drawn(seed, session):
            shared.forget(10, 11, 12)
            return shared.generate(session, PROMPT[8:], 16, GenParams(temperature=1.5, top_p=1.0, seed=seed)).tokens

        assert drawn(3, 10) == drawn(3, 11)
        assert drawn(3, 10) != drawn(4, 12)


class TestExactness:
    @pytest.mark.parametrize("params", [GenParams(), SAMPLED], ids=["greedy", "sampled"])
    @pytest.mark.parametrize("host_bytes", [1 << 28, 0], ids=["by way of host memory", "prefilled again"])
    def test_a_cut_generation_draws_what_the_uncut_one_does(self, backend, params, host_bytes):
        with worker(**backend, lanes=1, spare=0, host_bytes=host_bytes, context=256) as running:
            uncut = running.generate(1, PROMPT, 24, params, offset=5).tokens
            running.forget(1)
            tokens = list(PROMPT)
            for piece in (1, 5, 2, 9, 7):
                reply = running.generate(1, tokens, piece, params, offset=5)
                assert reply.finish in (Finish.LENGTH, Finish.END_OF_TURN)
                if host_bytes and len(tokens) > len(PROMPT):
                    assert (reply.warm, reply.prefilled) == (len(tokens) - 1, 1)
                tokens += reply.tokens
                if host_bytes:  # somebody else takes the only sequence
                    running.generate(2, PROMPT[::-1], 3)
                    assert running.kv[1] == (2, len(tokens) - 1)
            assert tokens[len(PROMPT) :] == uncut

    @pytest.mark.parametrize("params", [GenParams(), SAMPLED], ids=["greedy", "sampled"])
    def test_a_cut_generation_is_penalised_as_the_uncut_one(self, shared, params):
        options = LaneOptions(repeat_penalty=1.3, frequency_penalty=0.4, presence_penalty=0.6)
        shared.forget(1, 2)
        uncut = shared.generate(1, PROMPT, 24, params, 5, options).tokens
        tokens = list(PROMPT)
        for piece in (1, 5, 18):
            tokens += shared.generate(2, tokens, piece, params, 5, options).tokens
        assert tokens[len(PROMPT) :] == uncut
        shared.forget(1)
        assert shared.generate(1, PROMPT, 24, params, 5).tokens != uncut

    @pytest.mark.parametrize("params", [GenParams(), SAMPLED], ids=["greedy", "sampled"])
    def test_ticks_of_one_round_draw_what_long_ones_do(self, shared, params):
        shared.forget(1, 2)
        one = shared.generate(1, PROMPT, 12, params, rounds=1)
        shared.forget(1)
        assert shared.generate(2, PROMPT, 12, params, rounds=100).tokens == one.tokens


class TestForks:
    def test_at_the_end_and_in_the_middle_come_warm(self, shared):
        shared.forget(*range(1, 20))
        base = shared.generate(1, PROMPT, 10)
        whole = PROMPT + base.tokens
        end = shared.generate(2, [*whole, 30, 31], 3)
        assert end.warm == len(whole) - 1
        middle = shared.generate(3, [*PROMPT[:40], 50, 51], 3)
        assert middle.warm == 40
        # The forks took copies: the base goes on where it was.
        assert shared.generate(1, whole, 2).warm == len(whole) - 1
        # And they draw what they would have drawn from nothing.
        shared.forget(1, 2, 3)
        assert shared.generate(4, [*PROMPT[:40], 50, 51], 3).tokens[0] == middle.tokens[0]

    def test_of_a_running_lane_copies_its_sequence(self, shared):
        shared.forget(*range(1, 20))
        base = shared.start(1, PROMPT, 8)
        shared.tick([base.lane], [base], rounds=3)
        fork = shared.start(2, [*PROMPT, 70], 4)
        lanes = shared.finish([base.lane, fork.lane], [fork])
        assert [lane.finish for lane in lanes] == [Finish.LENGTH, Finish.LENGTH]
        assert lanes[1].warm == len(PROMPT)

    def test_where_one_sequence_is_all_there_is_take_it_after_saving(self, backend):
        with worker(**backend, lanes=1, spare=0, context=256) as running:
            base = running.generate(1, PROMPT, 4)
            assert running.generate(2, [*PROMPT[:50], 3, 4], 4).warm == 50
            assert running.kv[1] == (2, len(PROMPT) + 3)
            assert running.generate(1, PROMPT + base.tokens, 2).warm == len(PROMPT) + 3


class TestManyLanes:
    @pytest.mark.parametrize("spare", [0, 2])
    def test_eight_lanes_go_on_with_their_own_words(self, backend, spare):
        words = [[2000 + 40 * word + 7 * place for place in range(4)] for word in (0, 2, 3, 5, 6, 7, 8, 9)]
        with worker(**backend, lanes=8, spare=spare, context=256) as running:
            starts = [running.start(lane, words[lane] * 8, 6) for lane in range(8)]
            drawn = [lane.tokens for lane in running.generate_all(starts, chunk=40)]
            if "fake" not in backend:
                # Four words said eight times over are said again.
                assert drawn == [(own * 2)[:6] for own in words]
            for lane in range(8):
                running.forget(lane)
                assert running.generate(100 + lane, words[lane] * 8, 6).tokens == drawn[lane]
                running.forget(100 + lane)

    def test_more_lanes_than_sequences_wait_their_turn(self, backend):
        with worker(**backend, lanes=1, spare=1, context=256) as running:
            starts = [running.start(lane, PROMPT[lane:], 3) for lane in range(5)]
            assert [len(done.tokens) for done in running.generate_all(starts)] == [3] * 5

    def test_a_waiting_lane_lends_its_sequence(self, backend):
        with worker(**backend, lanes=1, spare=0, context=256) as running:
            long, short = running.start(1, PROMPT, 8), running.start(2, PROMPT[::-1], 2)
            first, _ = running.tick([long.lane], [long], rounds=4)
            running.tick([short.lane], [short])
            rest, _ = running.tick([long.lane])
            drawn = unpack(first.lanes[0].drawn).tolist() + unpack(rest.lanes[0].drawn).tolist()
            assert (rest.lanes[0].finish, rest.lanes[0].prefilled, rest.prefill_tokens) == (Finish.LENGTH, 0, 0)
            running.forget(1, 2)
            assert running.generate(1, PROMPT, 8).tokens == drawn


EPHEMERAL = LaneOptions(ephemeral=True)
ASKED = [*PROMPT, 77, 78, 79]


class TestEphemeralLanes:
    """They copy what is there, and when they end it is as if they had never been."""

    @pytest.mark.parametrize("session", [1, 2], ids=["of its own session", "of another"])
    def test_of_an_idle_sequence_leave_it_as_it_is(self, shared, session):
        shared.forget(*range(1, 30))
        base = PROMPT + shared.generate(1, PROMPT, 6).tokens
        kv = dict(shared.kv)
        first = shared.generate(session, [*PROMPT[:50], 5, 6], 5, options=EPHEMERAL)
        assert (first.warm, first.finish) == (50, Finish.LENGTH)
        assert shared.generate(session, [*base, 70, 71], 5, options=EPHEMERAL).warm == len(base) - 1
        assert shared.kv == kv
        # What they computed is gone, the base is whole, and from nothing they would have drawn the same.
        assert shared.generate(3, [*PROMPT[:50], 5, 6, 7], 2).warm == 50
        assert shared.generate(1, base, 2).warm == len(base) - 1
        shared.forget(1, 3)
        again = shared.generate(session, [*PROMPT[:50], 5, 6], 5, options=EPHEMERAL)
        assert (again.warm, again.tokens) == (0, first.tokens)
        assert shared.generate(session, [*PROMPT[:50], 5, 6], 5).warm == 0

    def test_copy_from_a_lane_that_runs(self, shared):
        shared.forget(*range(1, 30))
        base = shared.start(1, PROMPT, 20)
        shared.tick([base.lane], [base], rounds=3)
        asking = shared.start(1, ASKED, 4, options=EPHEMERAL)
        outcome, _ = shared.tick([base.lane, asking.lane], [asking], rounds=4)
        assert [(lane.finish, lane.warm) for lane in outcome.lanes] == [
            (Finish.OPEN, 0),
            (Finish.LENGTH, len(PROMPT)),
        ]
        assert shared.kv[1] == (1, len(PROMPT) + 6)
        shared.tick([], ends=[base.lane])

    def test_end_in_the_middle_without_a_trace(self, shared):
        shared.forget(*range(1, 30))
        asking = shared.start(2, ASKED, 50, options=EPHEMERAL)
        outcome, _ = shared.tick([asking.lane], [asking], rounds=3)
        assert outcome.lanes[0].finish == Finish.OPEN
        shared.tick([], ends=[asking.lane])
        assert shared.generate(2, ASKED, 2, options=EPHEMERAL).warm == 0

    def test_copy_from_host_memory_which_keeps_its_copy(self, backend):
        with worker(**backend, lanes=1, spare=0, context=256) as running:
            base = PROMPT + running.generate(1, PROMPT, 4).tokens
            running.generate(2, PROMPT[::-1], 4)
            for _ in range(2):
                assert running.generate(3, [*base, 70], 4, options=EPHEMERAL).warm == len(base) - 1
                assert (running.kv[1], running.kv[2]) == ((2, len(base) - 1), (2, len(PROMPT) + 3))
            assert running.generate(1, base, 2).warm == len(base) - 1

    def test_copy_from_disk(self, backend, tmp_path):
        settings = {**backend, "identity": b"model", "park": str(tmp_path), "park_bytes": 1 << 30}
        with worker(**settings) as running:
            base = PROMPT + running.generate(1, PROMPT, 4).tokens
            asking = running.start(2, [*base, 70], 40, options=EPHEMERAL)
            running.tick([asking.lane], [asking], rounds=4)
            running.send(Park(60_000))
            assert running.receive().sessions == 1  # nothing of what it computes is parked
        with worker(**settings) as running:
            assert running.generate(2, [*base, 70], 4, options=EPHEMERAL).warm == len(base) - 1
            assert 2 not in running.kv

    def test_of_the_only_sequence_go_by_way_of_host_memory(self, backend):
        with worker(**backend, lanes=1, spare=0, context=256) as running:
            base = PROMPT + running.generate(1, PROMPT, 4).tokens
            assert running.generate(1, [*base, 70], 4, options=EPHEMERAL).warm == len(base) - 1
            assert running.kv == {1: (2, len(base) - 1)}
            assert running.generate(1, base, 2).warm == len(base) - 1

    def test_wait_while_only_what_they_copy_from_is_not_running(self, backend):
        with worker(**backend, lanes=2, spare=0, context=256) as running:
            base = PROMPT + running.generate(1, PROMPT, 4).tokens
            long = running.start(2, PROMPT[::-1], 6)
            running.tick([long.lane], [long], rounds=1)
            asking = running.start(3, [*base, 70], 4, options=EPHEMERAL)
            outcome, _ = running.tick([asking.lane, long.lane], [asking], rounds=3)
            assert [(lane.prefilled, lane.remaining) for lane in outcome.lanes] == [(0, len(base) + 1), (0, 0)]
            rest = running.finish([asking.lane, long.lane])
            assert [lane.finish for lane in rest] == [Finish.LENGTH, Finish.LENGTH]
            assert rest[0].warm == len(base) - 1
            assert running.kv == {1: (1, len(base) - 1), 2: (2, len(PROMPT) + 5)}

    @pytest.mark.parametrize("params", [GenParams(), SAMPLED], ids=["greedy", "sampled"])
    def test_that_pause_go_on_from_their_own_copy_which_goes_with_them(self, backend, params):
        with worker(**backend, lanes=1, spare=0, context=256) as running:
            uncut = running.generate(1, ASKED, 10, params).tokens
            running.forget(1)
            asking = running.start(1, ASKED, 10, params, options=EPHEMERAL)
            drawn = []
            starts = [asking]
            for seen in (4, 3, 3):
                outcome, _ = running.tick([asking.lane], starts, rounds=seen)
                assert outcome.prefill_tokens == (len(ASKED) if starts else 0)
                drawn += unpack(outcome.lanes[0].drawn).tolist()
                starts = []
                running.generate(2, PROMPT[::-1], 3)  # somebody else takes the only sequence
            assert (outcome.lanes[0].finish, drawn) == (Finish.LENGTH, uncut)
            assert running.kv == {1: (0, 0), 2: (1, len(PROMPT) + 2)}
            assert running.generate(1, ASKED, 2, options=EPHEMERAL).warm == 0


WORDS = [2000 + 40 * word + 7 * place for word in (0, 2, 3, 5, 6, 7, 8, 9) for place in range(4)]
STREAM = [*PROMPT[:10], *WORDS, *PROMPT[20:50], *WORDS[:17]]
LEFT = [*STREAM[:10], *STREAM[14:30], *STREAM[36:]]


class TestShifts:
    """Tokens are taken out of the middle of a stream, and what is left is as good as it was where it was."""

    def shifted(self, running):
        """Session 1 has computed all of STREAM but its last token; then comes what makes LEFT of it."""
        running.generate(1, STREAM, 1)
        running.send(Shift(1, 30, 6), Shift(1, 10, 4))

    @pytest.fixture
    def expected(self, backend):
        """What the session says next if it goes on at once, for itself."""
        with worker(**backend, lanes=1, spare=1, context=256) as running:
            self.shifted(running)
            running.tick([])
            assert running.kv[1] == (1, len(LEFT))
            reply = running.generate(1, LEFT, 3)
            assert (reply.warm, reply.prefilled) == (len(LEFT) - 1, 1)
            if "fake" in backend:  # where KV knows nothing of what was before it
                running.forget(1)
                assert running.generate(1, LEFT, 3).tokens == reply.tokens
            return reply.tokens

    def test_come_warm_by_copy(self, backend, expected):
        with worker(**backend, lanes=1, spare=1, context=256) as running:
            self.shifted(running)
            for options in (EPHEMERAL, LaneOptions()):
                fork = running.generate(2, LEFT, 3, options=options)
                assert (fork.warm, fork.tokens) == (len(LEFT) - 1, expected)
            assert running.generate(1, LEFT, 3).tokens == expected

    def test_come_warm_from_host_memory(self, backend, expected):
        with worker(**backend, lanes=1, spare=0, context=256) as running:
            self.shifted(running)
            running.generate(2, PROMPT[::-1], 3)
            assert running.kv[1] == (2, len(LEFT))
            reply = running.generate(1, LEFT, 3)
            assert (reply.warm, reply.tokens) == (len(LEFT) - 1, expected)

    def test_come_warm_from_disk(self, backend, expected, tmp_path):
        settings = {**backend, "identity": b"model", "park": str(tmp_path), "park_bytes": 1 << 30, "context": 256}
        with worker(**settings) as running:
            self.shifted(running)
            running.send(Park(60_000))
            assert running.receive().sessions == 1
        with worker(**settings) as running:
            assert running.ready.kv == (KvChange(1, ON_DISK, len(LEFT)),)
            reply = running.generate(1, LEFT, 3)
            assert (reply.warm, reply.tokens) == (len(LEFT) - 1, expected)

    def test_that_cannot_be_change_nothing(self, shared):
        shared.forget(*range(1, 30))
        base = PROMPT + shared.generate(1, PROMPT, 4).tokens
        kv = dict(shared.kv)
        running = shared.start(2, PROMPT[::-1], 40)
        shared.tick([running.lane], [running], rounds=3)
        held = len(base) - 1
        shared.send(Shift(3, 0, 1), Shift(2, 5, 5), Shift(1, 0, 0), Shift(1, held - 3, 4), Shift(1, 1 << 63, 1 << 63))
        outcome, _ = shared.tick([running.lane], rounds=3)
        assert (outcome.lanes[0].finish, shared.kv[1]) == (Finish.OPEN, kv[1])
        shared.tick([], ends=[running.lane])
        assert shared.generate(1, base, 2).warm == held

    def test_of_everything_leave_nothing(self, shared):
        shared.forget(*range(1, 30))
        held = len(PROMPT + shared.generate(1, PROMPT, 4).tokens) - 1
        shared.send(Shift(1, 40, held - 40), Shift(1, 10, 5))
        shared.tick([])
        assert shared.kv[1] == (1, 35)
        shared.send(Shift(1, 0, 35))
        shared.tick([])
        assert shared.kv[1] == (0, 0)
        assert shared.generate(1, PROMPT, 2).warm == 0


class TestGaps:
    def test_are_of_the_first_draw_and_stay(self, shared):
        shared.forget(*range(1, 30))
        options = LaneOptions(gap=True)
        start = shared.start(1, PROMPT, 6, options=options)
        outcomes = [shared.tick([start.lane], starts, rounds=1, chunk=40)[0] for starts in ([start], [], [], [])]
        gaps = [outcome.lanes[0].gap for outcome in outcomes]
        assert gaps[0] == 0.0 < gaps[1] == gaps[2] == gaps[3]
        shared.tick([], ends=[start.lane])
        # It is a matter of the logits: chance, bias and penalties have no part in it.
        biased = LaneOptions(gap=True, presence_penalty=1.0, logit_bias=((17, 100.0),))
        assert shared.generate(1, PROMPT, 1, SAMPLED, options=biased).gap == gaps[1]
        assert shared.generate(2, PROMPT[3:], 1, options=options).gap != gaps[1]

    def test_are_told_to_who_asks(self, shared):
        asking = shared.start(1, PROMPT[3:], 3, options=LaneOptions(gap=True))
        other = shared.start(2, PROMPT[5:], 3)
        asked, silent = shared.generate_all([asking, other])
        assert asked.gap > 0.0 == silent.gap


class TestFaults:
    def test_tokens_outside_the_vocabulary(self, shared):
        reply = shared.generate(1, [5, 1 << 31, 6], 5)
        assert (reply.finish, reply.fault) == (Finish.ERROR, Fault.BAD_TOKEN)
        assert str(1 << 31) in reply.detail

    def test_no_tokens(self, shared):
        assert shared.generate(1, [], 5).fault == Fault.BAD_TOKEN

    def test_torn_tokens(self, shared):
        start = LaneStart(900_001, 1, b"\x01\x02\x03", GenParams(), 0, 5)
        outcome, _ = shared.tick([start.lane], [start])
        assert outcome.lanes[0].fault == Fault.BAD_TOKEN

    def test_more_tokens_than_the_context(self, shared):
        reply = shared.generate(1, [5] * (shared.ready.context + 1), 5)
        assert (reply.finish, reply.fault) == (Finish.ERROR, Fault.OUT_OF_MEMORY)
        assert str(shared.ready.context) in reply.detail

    def test_a_context_that_fills_up(self, shared):
        size = shared.ready.context
        shared.forget(*range(20))
        reply = shared.generate(15, [40 + place % 90 for place in range(size - 2)], 50, rounds=100)
        assert (len(reply.tokens), reply.finish, reply.fault) == (3, Finish.ERROR, Fault.OUT_OF_MEMORY)
        assert shared.generate(16, PROMPT, 3).finish == Finish.LENGTH

    def test_an_unknown_lane(self, shared):
        outcome, _ = shared.tick([123_456])
        assert [(lane.finish, lane.fault) for lane in outcome.lanes] == [(Finish.ERROR, Fault.INTERNAL)]

    def test_a_lane_started_twice(self, shared):
        start = shared.start(17, PROMPT, 5)
        outcome, _ = shared.tick([start.lane], [start, start])
        assert (outcome.lanes[0].finish, outcome.lanes[0].fault) == (Finish.ERROR, Fault.INTERNAL)
        assert shared.tick([start.lane])[0].lanes[0].detail != ""

    def test_one_bad_lane_leaves_the_others_alone(self, shared):
        good, bad = shared.generate_all([shared.start(18, PROMPT, 4), shared.start(19, [1 << 20], 4)])
        assert (good.finish, bad.finish) == (Finish.LENGTH, Finish.ERROR)


class TestBetweenTicks:
    def test_an_interrupt_ends_its_tick_only(self, shared):
        start = shared.start(20, PROMPT, 400)
        shared.send(
            Tick(5001, 400, 512, 60_000, (start,), (start.lane,), ()),
            Interrupt(5000),
            Interrupt(5001),
            Tick(5002, 3, 512, 60_000, (), (start.lane,), ()),
            Interrupt(5001),
        )
        # All of it may be read before the first round, in pieces, or late: the tick is cut after the round in
        # progress in any case, and the next one is not.
        first, _ = shared.outcome_of(5001)
        assert first.rounds < 400
        assert first.lanes[0].finish == Finish.OPEN
        assert shared.outcome_of(5002)[0].rounds == 3
        shared.tick([], ends=[start.lane])

    def test_an_interrupt_comes_while_it_computes(self, shared):
        start = shared.start(21, PROMPT, 400)
        shared.send(Tick(6001, 400, 512, 60_000, (start,), (start.lane,), ()))
        assert isinstance(shared.receive(), Drawn)
        shared.interrupt(6001)
        outcome = None
        while outcome is None:
            reply = shared.receive()
            outcome = None if isinstance(reply, Drawn) else reply
        # The fake may be through before the interrupt arrives; that it ends is what is promised then.
        assert outcome.tick == 6001
        shared.tick([], ends=[start.lane])

    def test_forgetting_leaves_no_trace(self, shared):
        shared.generate(22, PROMPT[9:], 4)
        assert shared.kv[22][0] == 1
        shared.forget(22)
        shared.tick([])
        assert shared.kv[22] == (0, 0)
        assert shared.generate(22, PROMPT[9:], 4).warm == 0

    def test_forgetting_ends_running_lanes(self, shared):
        start = shared.start(23, PROMPT[10:], 50)
        shared.tick([start.lane], [start], rounds=2)
        shared.forget(23)
        assert shared.tick([start.lane])[0].lanes[0].fault == Fault.INTERNAL

    def test_ended_lanes_leave_their_kv(self, shared):
        start = shared.start(24, PROMPT[11:], 50)
        outcome, _ = shared.tick([start.lane], [start], rounds=5)
        shared.tick([], ends=[start.lane])
        tokens = PROMPT[11:] + unpack(outcome.lanes[0].drawn).tolist()
        assert shared.generate(24, tokens, 2).warm == len(tokens) - 1


class TestLoading:
    def test_progress_goes_up_to_the_end(self, shared):
        assert shared.progress == sorted(shared.progress)
        assert shared.progress[-1] == 1000

    def test_ready_says_what_there_is(self, shared):
        ready = shared.ready
        assert (ready.sequences, ready.threads, ready.gpu_layers) == (4, 1, 0)
        assert ready.context >= 512
        assert ready.model_bytes > 0
        assert ready.kv_bytes > 0
        assert ready.devices[0]
        assert ready.build

    def test_a_missing_kv_change_is_not_repeated(self, shared):
        shared.generate(25, PROMPT, 2)
        assert shared.tick([])[0].kv == ()


def test_packing_is_what_the_frames_say():
    assert unpack(pack(PROMPT)).tolist() == PROMPT


class TestParking:
    """Through the process: parked on demand, found by the next one, gone when forgotten."""

    @pytest.fixture
    def parked(self, backend, tmp_path):
        """The settings of workers that share a directory, and what a session said there."""
        settings = {**backend, "identity": b"model", "park": str(tmp_path / "park"), "park_bytes": 1 << 30}
        with worker(**settings) as running:
            tokens = PROMPT + running.generate(1, PROMPT, 10).tokens
            running.generate(1 << 53, PROMPT[::-1], 10)
            running.send(Park(60_000))
            # Between the two it may have been written in the background already.
            assert running.receive().sessions == 1
        return settings, tokens

    def test_the_next_worker_is_warm(self, parked):
        settings, tokens = parked
        with worker(**settings) as running:
            assert running.ready.kv == (KvChange(1, ON_DISK, len(tokens) - 1),)
            again = running.generate(1, tokens, 6)
            assert (again.warm, again.prefilled) == (len(tokens) - 1, 1)
            assert running.generate(2, [*PROMPT[:40], 5, 6], 3).warm == 40
            running.forget(*range(5))
            assert running.generate(3, tokens, 6).tokens == again.tokens

    @pytest.mark.parametrize("change", [{"identity": b"other"}, {"kv_type": 1}])
    def test_another_model_is_not(self, parked, change):
        settings, tokens = parked
        with worker(**{**settings, **change}) as running:
            assert running.ready.kv == ()
            assert running.generate(1, tokens, 2).warm == 0

    def test_forgetting_leaves_no_file(self, parked, tmp_path):
        settings, tokens = parked
        with worker(**settings) as running:
            assert [path.name for path in (tmp_path / "park").iterdir()] == [f"{b'model'.hex()}-1.park"]
            running.forget(1)
            assert list((tmp_path / "park").iterdir()) == []
            assert running.generate(1, tokens, 2).warm == 0

    def test_a_directory_that_cannot_be_is_only_told_of(self, backend, tmp_path):
        (tmp_path / "file").write_text("no directory")
        running = Worker(**{"fake": backend.get("fake")})
        assert isinstance(running.load(park=str(tmp_path / "file" / "park"), park_bytes=1 << 30), Ready)
        assert running.generate(1, PROMPT, 3).finish == Finish.LENGTH
        running.send(Park(1000))
        assert running.receive() == Parked(0, 0, ())
        status, errors = running.leave()
        assert status == 0
        assert "KV is not parked" in errors
