"""Random ticks, forks, cuts, evictions, forgets and failures: nothing is lost or counted twice, and every token
drawn is the one that the tokens before it call for."""

import tempfile
from array import array
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from superfluid.engine.artifact import Key
from superfluid.engine.fake import FakeBackend
from superfluid.engine.fake_model import FakeModel
from superfluid.engine.parking import Parking
from superfluid.engine.parks import Parks
from superfluid.engine.rounds import Rounds
from superfluid.engine.sampling import draw, recipe
from superfluid.engine.threads import Fixed
from superfluid.engine.tiers import Tiers
from superfluid.protocol.codes import Fault, Finish
from superfluid.protocol.records import GenParams
from superfluid.protocol.ticks import IN_SEQUENCE, LaneOptions, LaneStart, Tick, pack, unpack

CONTEXT = 64
LOW, VOCABULARY = 3, 12

MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""Where thousands of small files are synced at no cost."""

OPTIONS = [LaneOptions(), LaneOptions(), LaneOptions(ignore_end=True), LaneOptions(presence_penalty=0.5)]

TRACELESS = 50
"""From here on, sessions have ephemeral lanes only."""

tokens = st.lists(st.integers(LOW, VOCABULARY - 1), min_size=1, max_size=12)


class Expected:
    """What a lane must do, from its start alone."""

    def __init__(self, start, sampled):
        self.start = start
        self.tokens = unpack(start.tokens).tolist()
        self.prompt = len(self.tokens)
        self.sampled = sampled
        self.over = False
        self.gap = 0.0

    def follow(self, model, outcome):
        for token in unpack(outcome.drawn):
            assert not self.over
            assert len(self.tokens) - self.prompt < self.start.limit
            bits = draw(self.start.params.seed, self.start.offset + len(self.tokens)) if self.sampled else None
            assert token == model.oracle(self.tokens, bits, recipe(self.start.params, self.start.options))
            if len(self.tokens) == self.prompt and self.start.options.gap:
                self.gap = model.gap(self.tokens)
            self.tokens.append(token)
        assert outcome.gap == self.gap
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


class Simulation:
    """A daemon's side of the worker's rounds, with the books of what must happen."""

    def __init__(self, *, sequences, host_bytes, failing=False, park_bytes=0, **model):
        if failing:
            model |= {"fail_every": 37, "no_room_every": 11, "restore_fails_every": 7, "save_fails_every": 5}
        self.model = FakeModel(vocabulary=VOCABULARY, low=LOW, end_every=9, **model)
        self.failing = failing
        self.now = 0.0
        self.backend = FakeBackend(self.model, CONTEXT, sequences, lambda seconds: None)
        self.announced = []
        self.directory = tempfile.TemporaryDirectory(dir=MEMORY) if park_bytes else None
        parks = None
        if self.directory:
            parks = Parks(Path(self.directory.name) / "park", park_bytes, Key(b"model", 0, False, "fake"))
            parks.scan()
        self.tiers = tiers = Tiers(self.backend, host_bytes, 50, parks)
        self.parking = Parking(tiers, parks, lambda: self.now) if parks is not None else None
        self.rounds = Rounds(
            self.backend,
            tiers,
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
        self.warm = 0
        self.shifts = 0

    def begin(self, session, prompt, limit, sampled, seed, offset, ephemeral=False):
        self.numbers += 1
        params = GenParams(temperature=1.0 if sampled else 0.0, top_p=1.0, seed=seed)
        options = OPTIONS[self.numbers % len(OPTIONS)]
        options = replace(options, ephemeral=ephemeral, gap=self.numbers % 3 == 0)
        start = LaneStart(self.numbers, session, pack(prompt), params, offset, limit, options)
        if not ephemeral:
            self.logs[session] = list(prompt)
        self.lanes[start.lane] = Expected(start, sampled)
        self.waiting.append(start)

    def step(self, run, ends=(), rounds=1, chunk=8):
        if self.parking:
            self.parking.begin()
        self.announced.clear()
        starts, self.waiting = tuple(self.waiting), []
        before = self.idle()
        traceless = all(self.lanes[number].start.options.ephemeral for number in (*run, *ends))
        outcome = self.rounds.run(Tick(1, rounds, chunk, 1000, starts, tuple(run), tuple(ends)))
        assert [lane.lane for lane in outcome.lanes] == list(run)
        assert outcome.rounds <= rounds
        if traceless:
            assert self.idle().items() <= before.items()
        for lane in ends:
            del self.lanes[lane]
        for lane in outcome.lanes:
            expected = self.lanes[lane.lane]
            announced = [token for reply in self.announced for number, token in reply.tokens if number == lane.lane]
            assert unpack(lane.drawn).tolist()[: len(announced)] == announced
            expected.follow(self.model, lane)
            if lane.finish == Finish.ERROR:
                full = len(expected.tokens) >= CONTEXT
                assert self.failing or (full and lane.fault == Fault.OUT_OF_MEMORY), lane.detail
            if expected.over:
                self.warm += lane.warm
                if not expected.start.options.ephemeral:
                    self.logs[expected.start.session] = expected.tokens
                del self.lanes[lane.lane]
        for change in outcome.kv:
            assert self.kv.get(change.session, (0, 0)) != (change.tier, change.covered)
            assert change.session < TRACELESS
            self.kv[change.session] = (change.tier, change.covered)

    def idle(self):
        """What lies in idle sequences, by their numbers."""
        return {slot.number: (slot.session, tuple(slot.tokens)) for slot in self.tiers._slots if slot.idle}

    def forget(self, sessions):
        self.step([])
        self.rounds.forget(frozenset(sessions))
        if self.parking:
            self.parking.forget(sessions)
        self.lanes = {number: lane for number, lane in self.lanes.items() if lane.start.session not in sessions}
        self.rounds.check()
        self.step([])
        assert all(self.kv.get(session, (0, 0)) == (0, 0) for session in sessions)

    def shift(self, session, start, count):
        """The session loses a part of its stream, and so does its idle sequence where it can."""
        self.step([])
        before = self.idle()
        own = [slot for slot in self.tiers._slots if slot.idle and slot.session == session]
        self.tiers.shift(session, start, count)
        self.rounds.check()
        changed = [slot for slot in own if self.idle().get(slot.number) != before[slot.number]]
        assert len(changed) <= 1
        for slot in changed:
            tokens = list(before[slot.number][1])
            assert len(tokens) >= start + count
            del tokens[start : start + count]
            assert slot.tokens.tolist() == tokens
            self.shifts += 1
        others = {number: held for number, held in before.items() if number not in {slot.number for slot in changed}}
        assert others.items() <= self.idle().items()
        if self.backend.traits.shifts and count and [slot for slot in own if len(slot.tokens) >= start + count]:
            assert changed or len(own) > 1 or own[0].copied or own[0].lent
        log = self.logs.get(session, [])
        del log[start : start + count]
        self.step([])
        if changed and changed[0].tokens:
            lengths = [
                len(slot.tokens) for slot in self.tiers._slots if slot.session == session and not slot.ephemeral
            ]
            assert self.kv[session] == (IN_SEQUENCE, max(lengths))

    def rest(self, seconds):
        """Nothing is asked for so long, and the writer does what it may."""
        if self.parking:
            self.now += seconds
            while (wait := self.parking.idle()) is not None and wait <= 0.05:
                self.now += wait
                self.parking._writer.rest(60 if wait == 0.05 else 0)

    def park(self):
        if self.parking:
            self.parking.park(60)

    def check(self):
        self.rounds.check()
        assert self.rounds.lanes == set(self.lanes) - {start.lane for start in self.waiting}

    def finish(self):
        """Run what is open to its end, which must come."""
        for _ in range(20 * len(self.lanes) + 20):
            self.step(sorted(self.lanes), rounds=8)
        assert not self.lanes
        self.rounds.close()
        self.check()
        self.close()
        self.backend.close()

    def close(self):
        if self.parking:
            self.parking.close()
            self.directory.cleanup()


SETTINGS = {
    "sequences": [1, 2, 3, 4],
    "host_bytes": [0, 150, 400, 1 << 20],
    "window": [0, 0, 6],
    "recurrent": [0, 0, 1],
    "failing": [False, True],
    "park_bytes": [0, 2000, 1 << 20],
}


def choose(log, more, kind, kept):
    """The next prompt of a session whose tokens are `log`, and whether it is another session's."""
    if not log or len(log) + len(more) >= CONTEXT - 8:
        return more, False
    kept = 1 + kept % len(log)
    return {
        "same": (log, False),
        "append": (log + more, False),
        "rewind": (log[:kept] + more, False),
        "fork": (log[:kept] + more, True),
        "end": (log + more, True),
    }[kind]


KINDS = ["same", "append", "rewind", "fork", "end"]


class TiersMachine(RuleBasedStateMachine):
    """Small cases, which shrink well."""

    @initialize(settings=st.fixed_dictionaries({name: st.sampled_from(held) for name, held in SETTINGS.items()}))
    def build(self, settings):
        self.simulation = Simulation(**settings)

    @rule(
        session=st.integers(1, 6),
        kind=st.sampled_from(KINDS),
        kept=st.integers(0, CONTEXT),
        more=tokens,
        limit=st.integers(0, 6),
        sampled=st.booleans(),
        seed=st.integers(0, 3),
    )
    def start_lane(self, session, kind, kept, more, limit, sampled, seed):
        prompt, other = choose(self.simulation.logs.get(session, []), more, kind, kept)
        self.simulation.begin(session + 10 * other, prompt, limit, sampled, seed, 5)

    @rule(
        session=st.integers(1, 6),
        own=st.booleans(),
        kind=st.sampled_from(KINDS),
        kept=st.integers(0, CONTEXT),
        more=tokens,
        limit=st.integers(0, 6),
        sampled=st.booleans(),
    )
    def start_ephemeral_lane(self, session, own, kind, kept, more, limit, sampled):
        prompt, _ = choose(self.simulation.logs.get(session, []), more, kind, kept)
        self.simulation.begin(session if own else TRACELESS + session, prompt, limit, sampled, 1, 5, ephemeral=True)

    @precondition(lambda self: self.simulation.lanes)
    @rule(data=st.data(), rounds=st.integers(1, 5), chunk=st.integers(1, 16))
    def tick(self, data, rounds, chunk):
        run = data.draw(st.permutations(sorted(self.simulation.lanes)), label="order")
        self.simulation.step(run[: data.draw(st.integers(0, len(run)), label="lanes")], (), rounds, chunk)

    @precondition(lambda self: self.simulation.lanes)
    @rule(data=st.data())
    def end_lane(self, data):
        self.simulation.step([], [data.draw(st.sampled_from(sorted(self.simulation.lanes)), label="lane")])

    @rule(session=st.integers(1, 6), start=st.integers(0, 20), count=st.integers(0, 20), more=st.booleans())
    def shift(self, session, start, count, more):
        self.simulation.shift(session, start, count)
        if more:
            self.simulation.shift(session, start // 2, count // 3)

    @rule(seconds=st.sampled_from([0.1, 1, 100]))
    def rest(self, seconds):
        self.simulation.rest(seconds)

    @rule()
    def park(self):
        self.simulation.park()

    @rule(sessions=st.sets(st.integers(1, 16), max_size=3))
    def forget(self, sessions):
        self.simulation.forget(sessions)

    @invariant()
    def nothing_is_lost(self):
        if hasattr(self, "simulation"):
            self.simulation.check()

    def teardown(self):
        if hasattr(self, "simulation"):
            try:
                self.simulation.finish()
            finally:
                self.simulation.close()


TestTiers = TiersMachine.TestCase
TestTiers.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


@pytest.mark.parametrize("window", [0, 6], ids=["plain", "window"])
@pytest.mark.parametrize("recurrent", [0, 1], ids=["attention", "recurrent"])
@pytest.mark.parametrize("failing", [False, True], ids=["sound", "failing"])
@pytest.mark.parametrize("host_bytes", [0, 400, 1 << 20])
def test_long_histories(window, recurrent, failing, host_bytes):
    warm = shifts = 0
    for seed in range(8):
        random = Random(seed)
        simulation = Simulation(
            sequences=1 + seed % 4,
            host_bytes=host_bytes,
            window=window,
            recurrent=recurrent,
            failing=failing,
            park_bytes=(0, 3000)[seed % 2],
        )
        for _ in range(150):
            for _ in range(random.randrange(3)):
                session = random.randrange(1, 7)
                more = random.choices(range(LOW, VOCABULARY), k=random.randrange(1, 14))
                prompt, other = choose(
                    simulation.logs.get(session, []), more, random.choice(KINDS), random.randrange(CONTEXT)
                )
                ephemeral = random.random() < 0.25
                session += random.choice([0, TRACELESS]) if ephemeral else 10 * other
                simulation.begin(
                    session,
                    prompt,
                    random.randrange(7),
                    random.random() < 0.5,
                    random.randrange(4),
                    5,
                    ephemeral=ephemeral,
                )
            run = random.sample(sorted(simulation.lanes), min(len(simulation.lanes), random.randrange(6)))
            others = sorted(set(simulation.lanes) - set(run))
            ends = random.sample(others, 1) if others and random.random() < 0.2 else []
            simulation.step(run, ends, random.randrange(1, 6), random.randrange(1, 17))
            if random.random() < 0.05:
                simulation.forget(set(random.sample(range(1, 17), 2)))
            for _ in range(random.choice([0, 0, 0, 1, 1, 2])):
                simulation.shift(random.randrange(1, 7), random.randrange(12), random.randrange(12))
            if random.random() < 0.1:
                simulation.rest(random.choice([0.1, 1, 100]))
            simulation.check()
        simulation.finish()
        warm += simulation.warm
        shifts += simulation.shifts
    assert warm
    assert bool(shifts) == (not window and not recurrent)


def test_the_oracle_sees_every_token():
    model = FakeModel()
    seen = {model.oracle(array("I", prompt), None) for prompt in ([1, 2, 3], [2, 1, 3], [1, 2], [1, 2, 4])}
    assert len(seen) == 4
    assert model.oracle([1, 2], 5) != model.oracle([1, 2], 6)
