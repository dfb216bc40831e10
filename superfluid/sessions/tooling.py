"""The rules of tool calls and permissions: (state, request) to records (spec: wire-facts, 8.0 and 8.16).

A call's id is the event id of its `ToolUse`. It ends once; what comes for it afterwards is noted, and never reaches
the input. Whether the session is busy is for the caller to check, first of all: AppendToolResult and
RequestPermission are refused then, the others are not (8.9).
"""

from __future__ import annotations

from dataclasses import dataclass

from superfluid.protocol.codes import LedgerState, ToolOutcomeCode
from superfluid.protocol.records import (
    PermissionRequest,
    PermissionResponse,
    Span,
    ToolCancelRequested,
    ToolExpired,
    ToolLease,
    ToolOutcome,
    ToolReconciliation,
    ToolResult,
)
from superfluid.protocol.refusals import (
    InheritedCall,
    LateResult,
    LeaseExpired,
    PermissionPending,
    ProtocolRefusal,
    Refusal,
    UnknownCall,
    UnknownPermission,
)
from superfluid.protocol.responses import LedgerEntry
from superfluid.protocol.wire import U64_MAX
from superfluid.sessions.calls import Call
from superfluid.sessions.state import SessionState

NO_CALL = 0
"""A permission request with this call id belongs to no call; event 0 is never a `ToolUse`."""

_NAMES = {LedgerState.SUCCEEDED: "closed"}


@dataclass(frozen=True, slots=True)
class TooLate:
    """A result that is not taken: `body` is committed all the same, and then `refusal` answers the request."""

    body: ToolExpired | ToolReconciliation
    refusal: Refusal


def judge_result(state: SessionState, call_id: int, content: str, now_ms: int) -> Call | TooLate:
    """What becomes of a result: the call that it answers, so that it can be rendered, or that it came too late.

    Raises InheritedCall, and UnknownCall where there is no such call or it has its result already.
    """
    call = _own(state, call_id)
    if call.is_open:
        if call.lease_deadline_ms is not None and call.lease_deadline_ms < now_ms:
            return TooLate(ToolExpired(call_id, "lease expired"), LeaseExpired(call_id))
        return call
    if call.state is LedgerState.SUCCEEDED:
        raise UnknownCall(call_id)
    note = f"late result: {len(content.encode('utf-8', 'replace'))} bytes"
    return TooLate(ToolReconciliation(call_id, note), LateResult(call_id, state_name(call.state)))


def result(call_id: int, content: str, rendered: Span) -> ToolResult:
    """The record of a result that `judge_result` let through. Raises ProtocolRefusal where nothing was rendered."""
    if not rendered:
        raise ProtocolRefusal("the model's chat template renders nothing for this tool result")
    return ToolResult(call_id, content, rendered)


def outcome(state: SessionState, call_id: int, code: int, note: str) -> ToolOutcome:
    """Failed or cancelled instead of a result; adds nothing to the input.

    Raises InheritedCall, UnknownCall, and ProtocolRefusal for a code that is neither.
    """
    _open(state, call_id)
    if code not in tuple(ToolOutcomeCode):
        raise ProtocolRefusal(f"unknown tool outcome {code}; 1 is failed, 2 cancelled")
    return ToolOutcome(call_id, code, note)


def cancel(state: SessionState, call_id: int) -> ToolCancelRequested:
    """Ask whoever runs the call to stop; it stays open. May be asked again. Raises InheritedCall, UnknownCall."""
    _open(state, call_id)
    return ToolCancelRequested(call_id)


def ask(state: SessionState, call_id: int, text: str) -> PermissionRequest:
    """A question that holds up Generate until it is answered. Raises InheritedCall, UnknownCall."""
    if call_id != NO_CALL:
        _open(state, call_id)
    return PermissionRequest(call_id, text)


def answer(state: SessionState, request_id: int, granted: bool) -> PermissionResponse:
    """Either answer lets Generate go on, and a denial does nothing to the call. Raises UnknownPermission."""
    if request_id not in state.permissions:
        raise UnknownPermission(request_id)
    return PermissionResponse(request_id, granted)


def check_permissions(state: SessionState) -> None:
    """Before Generate. Raises PermissionPending."""
    if state.permissions:
        raise PermissionPending(state.id, state.permissions)


def lease(call_id: int, lease_ms: int, now_ms: int) -> ToolLease | None:
    """What follows the `ToolUse` with this id right away; None where leases are off (`lease_ms` 0)."""
    return ToolLease(call_id, min(now_ms + lease_ms, U64_MAX)) if lease_ms > 0 else None


def expired(state: SessionState, now_ms: int) -> tuple[ToolExpired, ...]:
    """The calls whose lease is over, for Generate to commit first where leases are on."""
    return tuple(
        ToolExpired(call_id, "lease elapsed")
        for call_id, call in state.open_calls
        if call.lease_deadline_ms is not None and call.lease_deadline_ms <= now_ms
    )


def open_calls(state: SessionState) -> tuple[tuple[int, str, str], ...]:
    """The `ToolCalls` response: id, name and arguments of every open call, ascending."""
    return tuple((call_id, call.name, call.arguments) for call_id, call in state.open_calls)


def ledger(state: SessionState) -> tuple[tuple[int, LedgerEntry], ...]:
    """The `Ledger` response: every call of the session's own timeline, ascending."""
    return tuple(
        (
            call_id,
            LedgerEntry(
                call.name,
                call.arguments,
                int(call.state),
                call.cancel_requested,
                call.lease_deadline_ms,
                call.late_effects,
            ),
        )
        for call_id, call in sorted(state.calls.items())
    )


def state_name(state: LedgerState) -> str:
    """As texts call it: wire-facts, section 7."""
    return _NAMES.get(state, state.name.lower())


def _own(state: SessionState, call_id: int) -> Call:
    if call_id < state.fork_at:
        raise InheritedCall(call_id)
    call = state.calls.get(call_id)
    if call is None:
        raise UnknownCall(call_id)
    return call


def _open(state: SessionState, call_id: int) -> Call:
    call = _own(state, call_id)
    if not call.is_open:
        raise UnknownCall(call_id)
    return call
