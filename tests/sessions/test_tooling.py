"""Tool calls and permissions, rule by rule (wire-facts 8.0 and 8.16)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from superfluid.protocol import records
from superfluid.protocol.codes import LedgerState, Role
from superfluid.protocol.refusals import (
    InheritedCall,
    LateResult,
    LeaseExpired,
    PermissionPending,
    ProtocolRefusal,
    UnknownCall,
    UnknownPermission,
)
from superfluid.protocol.responses import LedgerEntry
from superfluid.protocol.wire import U64_MAX
from superfluid.sessions import decide, tooling
from superfluid.sessions.calls import Call
from superfluid.sessions.tooling import TooLate
from tests.sessions.world import World

NOW = 1_700_000_000_000
CALL = 4


@pytest.fixture
def world():
    return World()


@pytest.fixture
def state(world):
    """A session with one open call, event 4."""
    session = world.create().head.id
    world.write(
        session,
        records.Message(Role.USER, "hi", (1, 2)),
        records.GenerationPrompt((3,)),
        records.Generated((4,), '{"name": "f"}', 2, 1),
        records.ToolUse("f", '{"a":1}'),
    )
    return world.states[session]


def _write(world, state, *bodies):
    world.write(state.id, *bodies)


def test_a_result_answers_an_open_call(world, state):
    assert tooling.judge_result(state, CALL, "x", NOW) == Call("f", '{"a":1}')
    body = tooling.result(CALL, "x", (7, 8))
    assert body == records.ToolResult(CALL, "x", (7, 8))
    _write(world, state, body)
    assert state.calls[CALL].state is LedgerState.SUCCEEDED
    with pytest.raises(UnknownCall, match="tool call 4 is unknown or already closed"):
        tooling.judge_result(state, CALL, "x", NOW)
    with pytest.raises(ProtocolRefusal, match="renders nothing"):
        tooling.result(CALL, "", ())


@pytest.mark.parametrize("call_id", [0, 3, 5, U64_MAX])
def test_a_call_that_never_was(state, call_id):
    for attempt in (
        lambda: tooling.judge_result(state, call_id, "x", NOW),
        lambda: tooling.outcome(state, call_id, 1, ""),
        lambda: tooling.cancel(state, call_id),
    ):
        with pytest.raises(UnknownCall, match=f"tool call {call_id} is unknown"):
            attempt()


def test_a_call_of_the_parent_cannot_be_answered_in_a_fork(world, state):
    child = world.states[world.fork(state.id, 5).head.id]
    for attempt in (
        lambda: tooling.judge_result(child, CALL, "x", NOW),
        lambda: tooling.outcome(child, CALL, 9, ""),
        lambda: tooling.cancel(child, CALL),
        lambda: tooling.ask(child, CALL, "?"),
    ):
        with pytest.raises(InheritedCall, match="belongs to an ancestor's timeline"):
            attempt()
    with pytest.raises(UnknownCall):
        tooling.judge_result(child, 5, "x", NOW)
    assert tooling.ask(child, 0, "?") == records.PermissionRequest(0, "?")
    assert tooling.ledger(child) == ()


def test_a_lease_that_is_over_makes_a_result_late(world, state):
    _write(world, state, tooling.lease(CALL, 10, NOW))
    assert tooling.judge_result(state, CALL, "x", NOW + 10) == state.calls[CALL]
    verdict = tooling.judge_result(state, CALL, "x", NOW + 11)
    assert isinstance(verdict, TooLate)
    assert verdict.body == records.ToolExpired(CALL, "lease expired")
    assert isinstance(verdict.refusal, LeaseExpired)
    assert "lease" in str(verdict.refusal)
    assert "recorded as expired" in str(verdict.refusal)
    _write(world, state, verdict.body)
    again = tooling.judge_result(state, CALL, "é", NOW + 12)
    assert again.body == records.ToolReconciliation(CALL, "late result: 2 bytes")
    _write(world, state, again.body)
    assert (state.calls[CALL].state, state.calls[CALL].late_effects) == (LedgerState.EXPIRED, 1)


def test_elapsed_leases_are_swept(world, state):
    assert tooling.lease(CALL, 0, NOW) is None
    assert tooling.lease(CALL, U64_MAX, NOW) == records.ToolLease(CALL, U64_MAX)
    assert tooling.expired(state, U64_MAX) == ()
    _write(world, state, tooling.lease(CALL, 10, NOW), records.ToolUse("g", "{}"))
    assert tooling.expired(state, NOW + 9) == ()
    assert tooling.expired(state, NOW + 10) == (records.ToolExpired(CALL, "lease elapsed"),)
    _write(world, state, *tooling.expired(state, NOW + 10))
    assert tooling.expired(state, NOW + 10) == ()
    assert tooling.open_calls(state) == ((6, "g", "{}"),)


@pytest.mark.parametrize(
    ("code", "ended", "later"),
    [(1, "failed", LedgerState.FAILED), (2, "cancelled", LedgerState.CANCELLED_WITH_LATE_EFFECT)],
)
def test_a_late_result_is_a_reconciliation(world, state, code, ended, later):
    _write(world, state, tooling.outcome(state, CALL, code, "no"))
    tokens = len(state.tokens)
    for effects in (1, 2):
        verdict = tooling.judge_result(state, CALL, "four", NOW)
        assert verdict.body == records.ToolReconciliation(CALL, "late result: 4 bytes")
        assert isinstance(verdict.refusal, LateResult)
        assert "recorded as a reconciliation" in str(verdict.refusal)
        assert ended in str(verdict.refusal)
        _write(world, state, verdict.body)
        assert (state.calls[CALL].state, state.calls[CALL].late_effects) == (later, effects)
    assert len(state.tokens) == tokens
    with pytest.raises(UnknownCall):
        tooling.outcome(state, CALL, 1, "")


@pytest.mark.parametrize("code", [0, 3, 255])
def test_an_unknown_outcome(state, code):
    with pytest.raises(ProtocolRefusal, match=f"^protocol: unknown tool outcome {code}"):
        tooling.outcome(state, CALL, code, "")
    with pytest.raises(UnknownCall):
        tooling.outcome(state, 99, code, "")


def test_a_cancel_may_be_asked_for_again(world, state):
    for _ in range(2):
        _write(world, state, tooling.cancel(state, CALL))
    assert tooling.ledger(state) == ((CALL, LedgerEntry("f", '{"a":1}', 1, True, None, 0)),)
    assert tooling.open_calls(state) == ((CALL, "f", '{"a":1}'),)
    assert tooling.judge_result(state, CALL, "x", NOW) == state.calls[CALL]


def test_a_question_blocks_until_it_is_answered(world, state):
    tooling.check_permissions(state)
    _write(world, state, tooling.ask(state, CALL, "may I?"), tooling.ask(state, 0, "and I?"))
    for request, granted in ((5, False), (6, True)):
        with pytest.raises(PermissionPending, match=f"session {state.id} has an open permission request"):
            tooling.check_permissions(state)
        _write(world, state, tooling.answer(state, request, granted))
        with pytest.raises(UnknownPermission, match=f"permission request {request} is unknown or already answered"):
            tooling.answer(state, request, granted)
    tooling.check_permissions(state)
    assert tooling.open_calls(state) != ()
    with pytest.raises(UnknownPermission):
        tooling.answer(state, CALL, True)
    with pytest.raises(UnknownCall):
        tooling.ask(state, 5, "about no call")


def test_state_names_are_those_of_the_wire():
    assert [tooling.state_name(state) for state in LedgerState] == [
        "open",
        "cancel_requested",
        "closed",
        "failed",
        "cancelled",
        "expired",
        "cancelled_with_late_effect",
    ]


STEPS = st.sampled_from(["use", "result", "failed", "cancelled", "cancel", "lease", "sweep"])


@given(st.lists(st.tuples(STEPS, st.integers(0, 12), st.integers(0, 30))))
def test_a_call_ends_once(steps):
    world = World()
    state = world.states[world.create().head.id]
    ends: dict[int, int] = {}
    for step, call_id, late in steps:
        now, bodies = NOW + late, []
        try:
            match step:
                case "use":
                    bodies = [records.ToolUse("f", "{}")]
                case "result":
                    verdict = tooling.judge_result(state, call_id, "x", now)
                    bodies = [verdict.body if isinstance(verdict, TooLate) else tooling.result(call_id, "x", (1,))]
                case "failed" | "cancelled":
                    bodies = [tooling.outcome(state, call_id, 1 if step == "failed" else 2, "")]
                case "cancel":
                    bodies = [tooling.cancel(state, call_id)]
                case "lease":
                    bodies = [tooling.lease(call_id, 10, NOW)] if call_id in state.calls else []
                case "sweep":
                    bodies = list(tooling.expired(state, now))
        except UnknownCall:
            continue
        for body in bodies:
            if isinstance(body, records.ToolResult | records.ToolOutcome | records.ToolExpired):
                ends[body.call_id] = ends.get(body.call_id, 0) + 1
        world.write(state.id, *bodies)
    assert set(ends.values()) <= {1}
    assert set(ends) == set(state.calls) - {call_id for call_id, _, _ in tooling.open_calls(state)}
    assert [call_id for call_id, _ in tooling.ledger(state)] == sorted(state.calls)


def test_append_system_needs_something():
    decide.check_system_request("", ())
    decide.check_system_request(None, ("{}",))
    with pytest.raises(ProtocolRefusal, match="neither text nor tools"):
        decide.check_system_request(None, ())
