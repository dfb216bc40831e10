"""What single records do to a state: the tail that decides the opener, the ledger, permissions, epochs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from superfluid.protocol import records
from superfluid.protocol.codes import Finish, LedgerState, PurgeMode, Qos, Role
from superfluid.protocol.errors import DecodeError
from superfluid.sessions import snapshot
from superfluid.sessions.state import SessionState, Tail
from tests.sessions.world import World

USER = records.Message(Role.USER, "hi", (1,))
HEADER = records.GenerationPrompt((2,))


def after(*bodies):
    world = World()
    session = world.create().head.id
    world.write(session, *bodies)
    return world.states[session]


def reply(finish, span=(3, 4)):
    return records.Generated(span, "x", 0, finish)


@pytest.mark.parametrize(
    ("bodies", "tail"),
    [
        ([], Tail.EMPTY),
        ([records.EpochBump(), records.QosSet(0, False)], Tail.EMPTY),
        ([records.Message(Role.USER, "", ())], Tail.EMPTY),
        ([records.Block(Role.USER, 4, "{}", (), 2)], Tail.EMPTY),
        ([records.ToolResult(3, "", ())], Tail.EMPTY),
        ([USER], Tail.TURN),
        ([records.ToolUse("f", "{}"), records.ToolResult(1, "r", (5,))], Tail.TURN),
        ([records.Appended(None, (1,))], Tail.RAW),
        ([USER, records.Block(Role.USER, 1, "{}", (1,), 2)], Tail.RAW),
        ([USER, records.Block(Role.USER, 4, "{}", (), 2)], Tail.TURN),
        ([USER, HEADER], Tail.OPEN),
        ([USER, HEADER, reply(Finish.OPEN)], Tail.OPEN),
        ([USER, HEADER, reply(Finish.LENGTH)], Tail.OPEN),
        ([USER, HEADER, reply(Finish.GRAMMAR)], Tail.OPEN),
        ([USER, HEADER, reply(Finish.CANCELLED)], Tail.OPEN),
        ([USER, HEADER, reply(Finish.OPEN), reply(Finish.CANCELLED, ())], Tail.OPEN),
        ([USER, HEADER, reply(Finish.END_OF_TURN)], Tail.FINISHED),
        ([USER, HEADER, reply(Finish.END_OF_TURN), reply(Finish.ERROR, ())], Tail.FINISHED),
        ([USER, HEADER, reply(Finish.END_OF_TURN), records.ToolUse("f", "{}")], Tail.FINISHED),
        ([USER, HEADER, reply(Finish.END_OF_TURN), records.ToolResult(9, "", ())], Tail.FINISHED),
        ([USER, HEADER, reply(Finish.END_OF_TURN), records.ToolResult(9, "r", (7,))], Tail.TURN),
    ],
)
def test_the_tail_decides_the_opener(bodies, tail):
    assert after(*bodies).tail is tail


@pytest.mark.parametrize(
    ("bodies", "start"),
    [
        ([], 0),
        ([USER], 1),
        ([USER, HEADER], 2),
        ([USER, HEADER, reply(0), reply(2)], 2),
        ([USER, HEADER, reply(1), reply(0)], 4),
        ([USER, HEADER, reply(1), records.ToolResult(9, "", ())], 2),
        ([records.Appended(None, (1, 1, 1)), reply(0)], 3),
        ([USER, HEADER, reply(4), records.Appended(None, (1,)), reply(0)], 5),
    ],
)
def test_where_the_drawn_tokens_begin(bodies, start):
    assert after(*bodies).turn_start == start


def test_a_finish_is_remembered_with_or_without_tokens():
    assert after(USER, HEADER, reply(Finish.OPEN)).last_finish == Finish.OPEN
    assert after(USER, HEADER, reply(Finish.OPEN), reply(Finish.CANCELLED, ())).last_finish == Finish.CANCELLED


# --- the ledger ---------------------------------------------------------------------------------------------------

USE = records.ToolUse("f", '{"a": 1}')
ASK = records.ToolCancelRequested(1)
LATE = records.ToolReconciliation(1, "late result: 3 bytes")


@pytest.mark.parametrize(
    ("bodies", "state", "asked", "late"),
    [
        ([], LedgerState.OPEN, False, 0),
        ([ASK], LedgerState.CANCEL_REQUESTED, True, 0),
        ([ASK, ASK], LedgerState.CANCEL_REQUESTED, True, 0),
        ([records.ToolResult(1, "r", (5,))], LedgerState.SUCCEEDED, False, 0),
        ([ASK, records.ToolResult(1, "r", (5,))], LedgerState.SUCCEEDED, True, 0),
        ([records.ToolOutcome(1, 1, "n")], LedgerState.FAILED, False, 0),
        ([records.ToolOutcome(1, 2, "n")], LedgerState.CANCELLED, False, 0),
        ([ASK, records.ToolOutcome(1, 2, "n"), LATE], LedgerState.CANCELLED_WITH_LATE_EFFECT, True, 1),
        ([records.ToolOutcome(1, 2, "n"), LATE, LATE], LedgerState.CANCELLED_WITH_LATE_EFFECT, False, 2),
        ([records.ToolOutcome(1, 1, "n"), LATE], LedgerState.FAILED, False, 1),
        ([records.ToolExpired(1, "lease expired"), LATE], LedgerState.EXPIRED, False, 1),
        ([records.ToolExpired(1, "lease elapsed"), records.ToolOutcome(1, 1, "n")], LedgerState.EXPIRED, False, 0),
    ],
)
def test_a_call_ends_once(bodies, state, asked, late):
    folded = after(USE, *bodies)
    call = folded.calls[1]
    assert (call.name, call.arguments) == ("f", '{"a": 1}')
    assert (call.state, call.cancel_requested, call.late_effects) == (state, asked, late)
    assert folded.open_calls == (((1, call),) if state <= LedgerState.CANCEL_REQUESTED else ())


def test_a_lease_has_a_deadline():
    assert after(USE).calls[1].lease_deadline_ms is None
    assert after(USE, records.ToolLease(1, 2**64 - 1)).calls[1].lease_deadline_ms == 2**64 - 1


def test_records_about_calls_of_another_timeline_settle_nothing():
    folded = after(
        records.ToolResult(40, "r", (5,)),
        records.ToolOutcome(40, 1, ""),
        records.ToolExpired(40, ""),
        records.ToolCancelRequested(40),
        records.ToolReconciliation(40, ""),
        records.ToolLease(40, 5),
    )
    assert folded.calls == {}
    assert list(folded.tokens) == [5]


def test_permissions_stay_until_answered_either_way():
    asked = [records.PermissionRequest(0, "a"), records.PermissionRequest(0, "b")]
    assert after(*asked).permissions == {1, 2}
    assert after(*asked, records.PermissionResponse(2, False)).permissions == {1}
    assert (
        after(*asked, records.PermissionResponse(2, False), records.PermissionResponse(1, True)).permissions == set()
    )


def test_epochs_come_from_the_envelope():
    world = World()
    session = world.create().head.id
    world.write(session, records.EpochBump(), USER)
    assert [event.epoch for event in world.timelines[session]] == [1, 2, 2]
    child = world.fork(session, 3).head.id
    assert [event.epoch for event in world.timelines[child]] == [1, 2, 2, 1]
    assert world.states[child].epoch == 1


def test_a_rerooted_session_keeps_its_fork_point():
    world = World()
    parent = world.create().head.id
    world.write(parent, USER, records.QosSet(Qos.BACKGROUND, True))
    child = world.fork(parent, 2).head.id
    grandchild = world.fork(child, 3).head.id
    before = world.timelines[child][:]
    purge = world.purge(parent, PurgeMode.REROOT)
    head = world.heads.live(child)
    assert (head.parent, head.fork_at, head.own_from) == (None, 2, 0)
    assert world.timelines[child][:-1] == before
    assert world.timelines[child][-1].body.prefix == tuple((e.event_id, e.body) for e in before[:2])
    assert world.heads.live(grandchild).parent == child
    assert [change.head.id for change in purge.purged] == [parent]
    tombstone = world.heads.any(parent)
    assert (tombstone.purged, tombstone.generation, tombstone.title) == (True, 1, None)
    assert world.create().head.id == grandchild + 1, "ids are not used again"


# --- snapshots ----------------------------------------------------------------------------------------------------


def long_state():
    return after(
        USER, HEADER, reply(1), USE, ASK, records.PermissionRequest(0, "?"), records.MetaUpdated(1, "t", True)
    )


@given(st.data())
def test_a_damaged_snapshot_is_a_state_or_one_error(data):
    dumped = bytearray(snapshot.dump(long_state()))
    for _ in range(data.draw(st.integers(1, 3))):
        dumped[data.draw(st.integers(0, len(dumped) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.none() | st.integers(0, len(dumped)))
    try:
        assert isinstance(snapshot.load(bytes(dumped[:cut])), SessionState)
    except DecodeError:
        pass


def test_a_copy_is_a_state_of_its_own():
    state = long_state()
    twin = state.copy()
    assert twin == state
    for value in (twin.tokens, twin.roles, twin.calls, twin.permissions):
        value.clear() if not hasattr(value, "frombytes") else value.append(1)
    assert state == long_state()
    assert len(state.tokens) == len(twin.tokens) - 1
