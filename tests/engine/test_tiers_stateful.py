"""Random ticks, forks, cuts, evictions, forgets and failures: nothing is lost or counted twice, and every token
drawn is the one that the tokens before it call for."""

from array import array

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from superfluid.engine.fake import FakeBackend, FakeModel
from superfluid.engine.rounds import Rounds
from superfluid.engine.sampling import draw
from superfluid.engine.sequences import Tiers
from superfluid.engine.threads import Fixed
from superfluid.protocol.codes import Fault, Finish
from superfluid.protocol.records import GenParams
from superfluid.protocol.ticks import LaneStart, Tick, pack, unpack

CONTEXT = 64
LOW, VOCABULARY = 3, 12

tokens = st.lists(st.integers(LOW, VOCABULARY - 1), min_size=1, max_size=12)


class Expected:
    """What a lane must do, from its start alone."""

    def __init__(self, start, sampled):
        self.start = start
        self.tokens = unpack(start.tokens).tolist()
        self.prompt = len(self.tokens)
        self.sampled = sampled
        self.over = False

    def follow(self, model, outcome):
        for token in unpack(outcome.drawn):
            assert not self.over
            assert len(self.tokens) - self.prompt < self.start.limit
            bits = draw(self.start.params.seed, self.start.offset + len(self.tokens)) if self.sampled else None
            assert token == model.oracle(self.tokens, bits)
            self.tokens.append(token)
        drawn = len(self.tokens) - self.prompt
        if outcome.finish == Finish.END_OF_TURN:
            assert self.tokens[-1] == model.end
        if outcome.finish == Finish.LENGTH:
            assert drawn == self.start.limit
            assert drawn == 0 or self.tokens[-1] != model.end
        if outcome.finish == Finish.OPEN:
            assert outcome.fault == Fault.UNSPECIFIED
            assert not drawn or (drawn < self.start.limit and self.tokens[-1] != model.end)
        assert outcome.warm <= self.prompt
        assert outcome.remaining <= self.prompt
        self.over = outcome.finish != Finish.OPEN


class TiersMachine(RuleBasedStateMachine):
    @initialize(
        sequences=st.integers(1, 4),
        host_bytes=st.sampled_from([0, 60, 150, 1 << 20]),
        window=st.sampled_from([0, 0, 6]),
        recurrent=st.sampled_from([0, 0, 1]),
        failing=st.sampled_from([{}, {"fail_every": 7, "no_room_every": 5, "restore_fails_every": 3}]),
        save_fails_every=st.sampled_from([0, 2]),
    )
    def build(self, sequences, host_bytes, window, recurrent, failing, save_fails_every):
        self.model = FakeModel(
            vocabulary=VOCABULARY,
            low=LOW,
            end_every=9,
            window=window,
            recurrent=recurrent,
            save_fails_every=save_fails_every,
            **failing,
        )
        self.failing = bool(failing)
        self.backend = FakeBackend(self.model, CONTEXT, sequences, lambda seconds: None)
        self.announced = []
        self.rounds = Rounds(
            self.backend,
            Tiers(self.backend, host_bytes),
            Fixed(1),
            self.announced.append,
            lambda number: len(self.announced) % 5 == 4,
            clock=lambda: 0.0,
        )
        self.numbers = 0
        self.lanes = {}
        self.logs = {}
        self.waiting = []
        self.kv = {}

    def begin(self, session, prompt, limit, sampled, seed, offset):
        self.numbers += 1
        params = GenParams(temperature=1.0 if sampled else 0.0, top_p=1.0, seed=seed)
        start = LaneStart(self.numbers, session, pack(prompt), params, offset, limit)
        self.lanes[start.lane] = Expected(start, sampled)
        self.waiting.append(start)

    @rule(data=st.data(), more=tokens, limit=st.integers(0, 6), sampled=st.booleans(), seed=st.integers(0, 3))
    def start_lane(self, data, more, limit, sampled, seed):
        session = data.draw(st.integers(1, 6), label="session")
        log = self.logs.get(session, [])
        if log and len(log) + len(more) < CONTEXT:
            kind = data.draw(st.sampled_from(["same", "append", "rewind", "fork"]), label="kind")
            if kind == "append":
                log = log + more
            elif kind == "rewind":
                log = log[: data.draw(st.integers(1, len(log)), label="kept")] + more
            elif kind == "fork":
                session += 10
                log = log[: data.draw(st.integers(1, len(log)), label="kept")] + more
        else:
            log = more
        self.logs[session] = log
        self.begin(session, log, limit, sampled, seed, data.draw(st.integers(0, 2), label="offset"))

    @precondition(lambda self: self.lanes)
    @rule(data=st.data(), rounds=st.integers(1, 5), chunk=st.integers(1, 16))
    def tick(self, data, rounds, chunk):
        run = data.draw(st.permutations(sorted(self.lanes)), label="order")
        run = run[: data.draw(st.integers(0, len(run)), label="lanes")]
        self.step(run, (), rounds, chunk)

    @precondition(lambda self: self.lanes)
    @rule(data=st.data())
    def end_lane(self, data):
        lane = data.draw(st.sampled_from(sorted(self.lanes)), label="lane")
        self.step([], (lane,), 1, 8)
        del self.lanes[lane]

    def step(self, run, ends, rounds, chunk):
        self.announced.clear()
        starts, self.waiting = tuple(self.waiting), []
        outcome = self.rounds.run(Tick(1, rounds, chunk, 1000, starts, tuple(run), ends))
        assert [lane.lane for lane in outcome.lanes] == list(run)
        assert outcome.rounds <= rounds
        for lane in outcome.lanes:
            expected = self.lanes[lane.lane]
            announced = [token for reply in self.announced for number, token in reply.tokens if number == lane.lane]
            assert unpack(lane.drawn).tolist() == announced
            expected.follow(self.model, lane)
            if lane.finish == Finish.ERROR:
                full = len(expected.tokens) >= CONTEXT
                assert self.failing or (full and lane.fault == Fault.OUT_OF_MEMORY), lane.detail
            if expected.over:
                self.logs[expected.start.session] = expected.tokens
                del self.lanes[lane.lane]
        for change in outcome.kv:
            assert self.kv.get(change.session) != (change.tier, change.covered)
            self.kv[change.session] = (change.tier, change.covered)

    @rule(sessions=st.sets(st.integers(1, 16), max_size=3))
    def forget(self, sessions):
        self.step([], (), 1, 1)
        self.rounds.forget(frozenset(sessions))
        self.lanes = {number: lane for number, lane in self.lanes.items() if lane.start.session not in sessions}
        self.rounds.check()
        self.step([], (), 1, 1)
        assert all(self.kv.get(session, (0, 0)) == (0, 0) for session in sessions)

    @invariant()
    def nothing_is_lost(self):
        if hasattr(self, "rounds"):
            self.rounds.check()
            assert self.rounds.lanes == set(self.lanes) - {start.lane for start in self.waiting}

    def teardown(self):
        if hasattr(self, "rounds"):
            self.rounds.close()
            self.rounds.check()
            self.backend.close()


TestTiers = TiersMachine.TestCase
TestTiers.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def test_the_oracle_sees_every_token():
    model = FakeModel()
    seen = {model.oracle(array("I", prompt), None) for prompt in ([1, 2, 3], [2, 1, 3], [1, 2], [1, 2, 4])}
    assert len(seen) == 4
    assert model.oracle([1, 2], 5) != model.oracle([1, 2], 6)
