"""Random histories of many sessions: however a state is come by, it is the same, and what the records say."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from superfluid.protocol import records
from superfluid.protocol.codes import Finish, LedgerState, PurgeMode, Role
from superfluid.protocol.records import Event
from superfluid.protocol.refusals import SessionPurged
from superfluid.sessions import snapshot
from superfluid.sessions.heads import Heads
from superfluid.sessions.state import SessionState
from tests.sessions.bodies import bodies, edits
from tests.sessions.reference import Reference
from tests.sessions.world import World

TERMINAL = records.ToolResult | records.ToolOutcome | records.ToolExpired


class Histories(RuleBasedStateMachine):
    @initialize()
    def start(self):
        self.world = World()
        self.world.create()

    def pick(self, data):
        return data.draw(st.sampled_from(self.world.living()), label="session")

    @rule(data=st.data(), child=st.booleans())
    def create(self, data, child):
        self.world.create(self.pick(data) if child and self.world.living() else None)

    @precondition(lambda self: self.world.living())
    @rule(data=st.data(), count=st.integers(1, 6))
    def write(self, data, count):
        session = self.pick(data)
        for _ in range(count):
            self.world.write(session, data.draw(bodies(self.world.states[session])))

    @precondition(lambda self: self.world.living())
    @rule(data=st.data())
    def fork(self, data):
        session = self.pick(data)
        at = data.draw(st.integers(1, self.world.states[session].events))
        parent = self.world.states[session]
        change = self.world.fork(session, at)

        expected = self.world.fold(session, at)
        expected.id = change.head.id
        expected.qos, expected.batch_invariant = parent.qos, parent.batch_invariant
        expected.apply(Event(at, 1, change.events[0].ts_unix_ms, records.Forked(session, at, parent.params)))
        assert self.world.states[change.head.id] == expected

    @precondition(lambda self: any(state.events > 1 for state in self.world.states.values()))
    @rule(data=st.data())
    def rebase(self, data):
        long_enough = [session for session, state in sorted(self.world.states.items()) if state.events > 1]
        session = data.draw(st.sampled_from(long_enough))
        self.world.rebase(session, data.draw(edits(self.world.states[session])))

    @precondition(lambda self: self.world.living())
    @rule(data=st.data())
    def trim(self, data):
        session = self.pick(data)
        to = data.draw(st.integers(1, self.world.states[session].events))
        child = self.world.trim(session, to).head.id
        assert self.world.states[child].events == to + 1
        assert list(self.world.states[child].tokens) == Reference(self.world.timelines[session][:to]).tokens

    @precondition(lambda self: len(self.world.living()) > 2)
    @rule(data=st.data(), mode=st.sampled_from(PurgeMode))
    def purge(self, data, mode):
        session = self.pick(data)
        below = set(self.world.heads.descendants(session))
        before = set(self.world.living())
        gone = [change.head.id for change in self.world.purge(session, mode).purged]
        assert gone[-1] == session
        assert set(gone) == ({session} | below if mode is PurgeMode.CASCADE else {session})
        assert set(self.world.living()) == before - set(gone)
        with pytest.raises(SessionPurged):
            self.world.heads.live(session)

    @precondition(lambda self: self.world.living())
    @rule(data=st.data())
    def replay_from_a_snapshot(self, data):
        session = self.pick(data)
        at = data.draw(st.integers(0, self.world.states[session].events))
        early = snapshot.load(snapshot.dump(self.world.fold(session, at)))
        assert self.world.fold(session, start=early) == self.world.states[session]

    @precondition(lambda self: self.world.living())
    @rule(data=st.data())
    def resolve_a_range(self, data):
        session = self.pick(data)
        start, stop = sorted(data.draw(st.tuples(*[st.integers(0, self.world.states[session].events + 2)] * 2)))
        segments = self.world.heads.segments(session, start, stop)
        assert all(segment.start < segment.stop for segment in segments)
        assert self.world.stored(segments) == self.world.timelines[session][start:stop]

    @rule()
    def start_again(self):
        """A restart knows the heads and the records only."""
        self.world.heads = Heads(self.world.all_heads())
        for session in self.world.living():
            self.world.states[session] = self.world.fold(session)

    @invariant()
    def states_are_what_the_records_say(self):
        for session, state in self.world.states.items():
            events = self.world.timelines[session]
            assert [event.event_id for event in events] == list(range(state.events))
            assert_stream(state, Reference(events))
            assert self.world.fold(session) == state
            assert snapshot.load(snapshot.dump(state)) == state
            assert self.world.heads.live(session) == self.world.heads.live(session).after(state)
            assert state.created_ms == events[0].ts_unix_ms
            assert state.epoch == events[-1].epoch
            own = events[state.fork_at :]
            assert {c: as_ledger(call) for c, call in state.calls.items()} == ledger(own)
            assert [c for c, _ in state.open_calls] == [c for c, row in ledger(own).items() if row[0] < 2]
            assert state.permissions == permissions(own)
            assert (state.title, state.archived, state.meta_version) == meta(own)
            assert state.last_finish == next(
                (e.body.finish for e in reversed(events) if isinstance(e.body, records.Generated)), Finish.OPEN
            )

    @invariant()
    def the_tree_is_whole(self):
        living = self.world.living()
        assert [head.id for head in self.world.heads.all_live()] == living
        for session in living:
            order = self.world.heads.descendants(session)
            assert len(set(order)) == len(order)
            for child in self.world.heads.children(session):
                assert self.world.heads.live(child).parent == session
                assert set(self.world.heads.descendants(child)) < set(order)
                own_place = order.index(child)
                assert all(order.index(below) < own_place for below in self.world.heads.descendants(child))


def assert_stream(state, expected):
    assert list(state.tokens) == expected.tokens
    assert state.ever == expected.ever
    assert state.tail is expected.tail
    assert state.turn_start == expected.turn_start
    assert state.turns == expected.turns
    assert [(m.role, m.text, m.start, m.end, m.calls) for m in state.said] == expected.said
    feed = state.feed
    assert feed.entries == expected.entries
    assert [list(entry) for entry in feed.detached] == expected.detached
    counts = (feed.version, feed.ingested, feed.evicted, feed.dropped)
    assert counts == (expected.version, expected.ingested, expected.evicted, expected.dropped)
    assert (feed.window, feed.pre_decode) == (expected.window, expected.pre_decode)
    assert feed.frozen_end is None or feed.frozen_end <= len(state.tokens)
    assert not feed.entries or feed.frozen_end <= feed.entries[0][0]
    answers = {
        n: (f.value, f.version, f.answered_ms, f.ever) if f.value is not None else None
        for n, f in feed.flashes.items()
    }
    assert answers == {n: answer for n, (_, answer) in expected.flashes.items()}


def as_ledger(call):
    return (call.state, call.cancel_requested, call.lease_deadline_ms, call.late_effects, call.name, call.arguments)


def ledger(own):
    rows = {}
    for event in own:
        if isinstance(event.body, records.ToolUse):
            of_call = [e.body for e in own if e.event_id > event.event_id and about(e.body) == event.event_id]
            rows[event.event_id] = ledger_row(event.body, of_call)
    return rows


def about(body):
    return None if isinstance(body, records.PermissionRequest) else getattr(body, "call_id", None)


def ledger_row(use, of_call):
    end = next((place for place, body in enumerate(of_call) if isinstance(body, TERMINAL)), None)
    asked = [isinstance(body, records.ToolCancelRequested) for body in of_call]
    late = sum(isinstance(body, records.ToolReconciliation) for body in of_call)
    leases = [body.deadline_unix_ms for body in of_call if isinstance(body, records.ToolLease)]
    if end is None:
        state = LedgerState.CANCEL_REQUESTED if any(asked) else LedgerState.OPEN
    else:
        match of_call[end]:
            case records.ToolResult():
                state = LedgerState.SUCCEEDED
            case records.ToolExpired():
                state = LedgerState.EXPIRED
            case records.ToolOutcome(outcome=1):
                state = LedgerState.FAILED
            case _:
                state = LedgerState.CANCELLED_WITH_LATE_EFFECT if late else LedgerState.CANCELLED
    return (state, any(asked), leases[-1] if leases else None, late, use.name, use.arguments)


def permissions(own):
    asked = set()
    for event in own:
        if isinstance(event.body, records.PermissionRequest):
            asked.add(event.event_id)
        elif isinstance(event.body, records.PermissionResponse):
            asked.discard(event.body.request_id)
    return asked


def meta(own):
    title, archived, version = None, False, 0
    for event in own:
        if isinstance(event.body, records.MetaUpdated):
            version = event.body.version
            title = event.body.title if event.body.title is not None else title
            archived = event.body.archived if event.body.archived is not None else archived
    return title, archived, version


Histories.TestCase.settings = settings(max_examples=40, stateful_step_count=30)
test_histories = Histories.TestCase


def test_roles_tell_who_spoke():
    world = World()
    session = world.create().head.id
    world.write(
        session,
        records.Message(Role.SYSTEM, "s", (1,)),
        records.Message(Role.USER, "u", (2,)),
        records.GenerationPrompt((3,)),
        records.Generated((4,), "a", 0, Finish.OPEN),
        records.Generated((5,), "a", 0, Finish.END_OF_TURN),
        records.ToolUse("f", "{}"),
        records.ToolResult(6, "r", (6,)),
        records.Generated((7,), "no header", 0, Finish.END_OF_TURN),
        records.Generated((8,), "nor here", 0, Finish.LENGTH),
    )
    assert world.states[session].roles == [
        Role.SYSTEM,
        Role.USER,
        Role.ASSISTANT,
        Role.TOOL,
        Role.ASSISTANT,
        Role.ASSISTANT,
    ]


def test_ids_are_dense():
    state = SessionState(1)
    state.apply(Event(0, 1, 5, records.Created(None, records.GenParams())))
    with pytest.raises(ValueError, match="event 2 where 1 is due"):
        state.apply(Event(2, 1, 5, records.EpochBump()))
    assert state.events == 1
