"""A stateful machine: the log against plain lists, over commits, forks, purges, snapshots and reopening."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from superfluid.protocol import records
from superfluid.protocol.codes import PurgeMode
from superfluid.protocol.wire import U64_MAX
from superfluid.sessions.heads import FeedHead, Head, Heads
from superfluid.store.errors import DamagedRecord
from superfluid.store.log import Change, SessionLog
from superfluid.store.reading import PAGE
from tests.sessions.bodies import bodies, edits
from tests.sessions.world import World


def read_all(log, world):
    return {s: list(log.read(world.heads.segments(s, 0, world.heads.live(s).events))) for s in world.living()}


def fold(log, heads, session):
    """As the daemon folds: from the latest snapshot, else from the first record."""
    head = heads.live(session)
    state = log.snapshot(session, head.events)
    start = state.events if state is not None else 0
    world = World()
    world.heads = heads
    world.timelines[session] = [*[None] * start, *log.read(heads.segments(session, start, head.events))]
    return world.fold(session, start=state)


class Logs(RuleBasedStateMachine):
    @initialize()
    def start(self):
        self.directory = Path(tempfile.mkdtemp(prefix="superfluid-test-"))
        self.log = SessionLog(self.directory / "model.db")
        self.world = World()
        self.log.commit([self.world.create()])

    def teardown(self):
        if hasattr(self, "log"):
            self.log.close()
            shutil.rmtree(self.directory)

    def pick(self, data):
        return data.draw(st.sampled_from(self.world.living()), label="session")

    def changes(self, data):
        change = None
        if not self.world.living():
            return [self.world.create()]
        match data.draw(st.sampled_from(["write", "write", "write", "create", "fork", "fork", "rebase", "trim"])):
            case "create":
                change = self.world.create(data.draw(st.none() | st.sampled_from(self.world.living())))
            case "write":
                session = self.pick(data)
                drawn = [data.draw(bodies(self.world.states[session])) for _ in range(data.draw(st.integers(1, 3)))]
                change = self.world.write(session, *drawn, with_snapshot=data.draw(st.booleans(), label="snapshot"))
            case "rebase" if self.world.states[session := self.pick(data)].events > 1:
                change = self.world.rebase(session, data.draw(edits(self.world.states[session])))
            case "trim":
                session = self.pick(data)
                change = self.world.trim(session, data.draw(st.integers(1, self.world.states[session].events)))
            case _:
                session = self.pick(data)
                change = self.world.fork(session, data.draw(st.integers(1, self.world.states[session].events)))
        return [change]

    @rule(data=st.data(), count=st.integers(1, 4))
    def commit(self, data, count):
        self.log.commit([change for _ in range(count) for change in self.changes(data)])

    @precondition(lambda self: self.world.living())
    @rule(data=st.data(), mode=st.sampled_from([PurgeMode.REROOT, PurgeMode.REROOT, PurgeMode.CASCADE]))
    def purge(self, data, mode):
        session = self.pick(data)
        purge = self.world.purge(session, mode)
        self.log.purge(purge.purged, purge.rerooted)
        assert os.path.getsize(self.directory / "model.db-wal") == 0
        assert self.log.snapshot(session, 10_000) is None

    @rule()
    def truncate(self):
        self.log.truncate()

    @rule()
    def reopen(self):
        store_id = self.log.store_id
        self.log.close()
        self.log = SessionLog(self.directory / "model.db")
        assert self.log.store_id == store_id
        self.world.heads = Heads(self.log.heads())

    @precondition(lambda self: self.world.living())
    @rule(data=st.data())
    def snapshot_within_bounds(self, data):
        session = self.pick(data)
        most = data.draw(st.integers(0, self.world.states[session].events))
        state = self.log.snapshot(session, most)
        if state is not None:
            assert state.events <= most
            assert state == self.world.fold(session, state.events)

    @invariant()
    def everything_reads_back(self):
        assert self.log.heads() == self.world.all_heads()
        assert read_all(self.log, self.world) == self.world.timelines
        for session in self.world.living():
            assert self.log.head(session) == self.world.heads.live(session)
            assert fold(self.log, self.world.heads, session) == self.world.states[session]
        assert list(self.log.check()) == []


Logs.TestCase.settings = settings(max_examples=30, stateful_step_count=20)
test_log = Logs.TestCase


def test_pages_and_ranges(log):
    world = World()
    session = world.create().head.id
    many = [records.Appended(str(n), (n,)) for n in range(PAGE * 2 + 7)]
    world.write(session, *many)
    child = world.fork(session, PAGE + 3)
    log.commit([Change(world.heads.live(session), tuple(world.timelines[session])), child])
    assert read_all(log, world) == world.timelines
    for start, stop in [(0, 1), (PAGE - 1, PAGE + 1), (PAGE, PAGE * 2), (5, 5), (PAGE * 2, 99_999)]:
        segments = world.heads.segments(session, start, stop)
        assert list(log.read(segments)) == world.timelines[session][start:stop]
    assert log.head(99) is None


def test_every_number_that_a_pin_may_have(log, path):
    world = World()
    session = world.create().head.id
    log.commit([Change(world.heads.live(session), tuple(world.timelines[session]))])
    for deadline in (0, 2**63 - 1, 2**63, U64_MAX):
        log.commit([world.write(session, records.Pinned(deadline))])
        assert log.heads() == world.all_heads()
    assert read_all(log, world) == world.timelines


def test_a_title_is_the_last_one_said(log):
    world = World()
    log.commit([world.create()])
    log.commit([world.write(1, records.MetaUpdated(1, "one", None), records.MetaUpdated(2, None, True))])
    assert log.heads()[0].title == "one"
    log.commit([world.write(1, records.MetaUpdated(3, "two", None), records.MetaUpdated(4, "", None))])
    assert log.heads()[0].title == ""
    log.commit([world.fork(1, 5)])
    assert [head.title for head in log.heads()] == ["", None]


def test_a_commit_is_whole_or_not_at_all(log):
    world = World()
    log.commit([world.create(), world.create()])
    before = world.copy()
    changes = [world.write(1, records.Appended("kept?", (1,))), world.write(2, records.Appended("\ud800", (1,)))]
    with pytest.raises(UnicodeEncodeError):
        log.commit(changes)
    assert log.heads() == before.all_heads()
    assert read_all(log, before) == before.timelines
    log.commit([before.write(1, records.Appended("later", (1,)))])
    assert read_all(log, before) == before.timelines


def test_a_second_record_of_the_same_id_is_refused(log):
    world = World()
    change = world.create()
    log.commit([change])
    with pytest.raises(Exception, match="UNIQUE"):
        log.commit([change])
    assert read_all(log, world) == world.timelines


def test_an_interrupted_reader_is_not_in_the_way(log):
    world = World()
    session = world.create().head.id
    world.write(session, *[records.Appended("x", (n,)) for n in range(PAGE * 3)])
    log.commit([Change(world.heads.live(session), tuple(world.timelines[session]))])
    reading = log.read(world.heads.segments(session, 0, 9_999))
    next(reading)
    purge = world.purge(session, PurgeMode.REROOT)
    log.purge(purge.purged, purge.rerooted)
    with pytest.raises(DamagedRecord):
        list(reading)  # the daemon looks at the head again before it says so


def test_heads_hold_what_a_start_needs(log):
    world = World()
    log.commit([world.create(), world.fork(1, 1)])
    log.commit([world.write(2, records.ToolUse("f", "{}"), records.QosSet(1, True), records.EpochBump())])
    fed = (
        records.Named("cpu"),
        records.FeedOpened(9, True),
        records.Ingested(1, (7,), (records.Entry("a", (1,)), records.Entry("b", (2, 3))), 0, 4),
        records.Ingested(2, (), (records.Entry("c", (4,)),), 1, 0),
        records.FlashAdded(1, "q", 5),
        records.Generated((5,), "x", 0, 1),
    )
    log.commit([world.write(2, *fed)])
    (_, head) = log.heads()
    assert head == Head(
        id=2,
        parent=1,
        fork_at=1,
        own_from=1,
        events=11,
        tokens=5,
        epoch=2,
        title=None,
        archived=False,
        meta_version=0,
        generation=0,
        purged=False,
        open_calls=1,
        pin_deadline_ms=0,
        born_qos=2,
        born_invariant=False,
        born_ms=world.own[2][1].ts_unix_ms,
        feed=FeedHead(
            "cpu", 9, True, version=2, evicted=1, dropped=4, taken=7, frozen_end=1, flashes=1, turns=1, ever=6
        ),
    )
