"""The error table: every way in which the daemon refuses, with the text that clients match on.

One leaf a condition (spec: wire-facts, section 8.0). `code` is stable, `status` is the HTTP status where a route has
no table of its own, `exit_code` what the command line leaves with. Edges translate once; nothing in between does.
Those of names and feeds are in `feed_refusals`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar


class Refusal(Exception):
    """The daemon will not do it, and nothing has changed. `str()` is the message a client sees."""

    code: ClassVar[str] = "refused"
    status: ClassVar[int] = 400
    exit_code: ClassVar[int] = 1


class UnknownSession(Refusal):
    code = "unknown_session"
    status = 404
    exit_code = 4

    def __init__(self, session: int) -> None:
        super().__init__(f"unknown session {session}")


class SessionPurged(Refusal):
    code = "session_purged"
    status = 404
    exit_code = 4

    def __init__(self, session: int) -> None:
        super().__init__(f"session {session} was purged")


class SessionDamaged(Refusal):
    """A record of this session failed its checksum; the others serve on."""

    code = "session_damaged"
    status = 500

    def __init__(self, session: int, event: int) -> None:
        super().__init__(f"session {session} is damaged: event {event} fails its checksum; nothing of it was changed")


class SessionBusy(Refusal):
    code = "session_busy"
    status = 409

    def __init__(self, session: int) -> None:
        super().__init__(f"session {session} is generating; wait for it or cancel it")


class NothingInFlight(Refusal):
    code = "nothing_in_flight"
    status = 409

    def __init__(self, session: int) -> None:
        super().__init__(f"session {session} has no generation in flight")


class EmptySession(Refusal):
    code = "empty_session"

    def __init__(self, session: int) -> None:
        super().__init__(f"session {session} has no content to generate from; append something first")


class OverWindow(Refusal):
    code = "over_window"

    def __init__(self, tokens: int, window: int, *, counted: bool = True) -> None:
        """Without `counted`, `tokens` is the least that it can be."""
        self.tokens, self.window, self.counted = tokens, window, counted
        super().__init__(
            f"the request has {'' if counted else 'at least '}{tokens} tokens and the window {window}: "
            "no room for a reply; trim or rebase the session, or serve with a larger --max-context"
        )


class BadRole(Refusal):
    code = "bad_role"

    def __init__(self, role: int) -> None:
        super().__init__(f"unknown message role {role}; 0 is system, 1 user, 2 assistant")


class BadPoint(Refusal):
    code = "bad_fork_point"

    def __init__(self, session: int, point: int, most: int) -> None:
        super().__init__(f"fork point {point} is outside session {session}: 1..={most}")


class DataErased(Refusal):
    code = "data_erased"

    def __init__(self, session: int, point: int) -> None:
        super().__init__(f"data that session {session} held at event {point} is erased (--feed-keep); go on later")


class BadEdits(Refusal):
    code = "bad_edits"

    def __init__(self, reason: str) -> None:
        super().__init__(f"rebase edit spec invalid: {reason}")


class MetaConflict(Refusal):
    code = "meta_conflict"
    status = 409

    def __init__(self, session: int, actual: int, expected: int) -> None:
        super().__init__(f"session {session} is at metadata version {actual}, not at the expected {expected}")


class PurgeConflict(Refusal):
    code = "purge_conflict"
    status = 409

    def __init__(self, session: int, actual: int, expected: int) -> None:
        super().__init__(f"session {session} is at generation {actual}, not at the expected {expected}")


class NotQuiet(Refusal):
    code = "not_quiet"
    status = 409

    def __init__(self, session: int) -> None:
        super().__init__(f"session {session} did not quiesce in time; nothing was purged")


class SystemTooLate(Refusal):
    code = "system_too_late"

    def __init__(self, session: int) -> None:
        super().__init__(f"session {session} already has a prompt; AppendSystem must come before any other turn")


class UnknownSubscription(Refusal):
    code = "unknown_subscription"
    status = 404

    def __init__(self, sub: int) -> None:
        super().__init__(f"no subscription {sub} on this connection")


class ProtocolRefusal(Refusal):
    """A request that makes no sense as it stands."""

    code = "protocol"

    def __init__(self, reason: str) -> None:
        super().__init__(f"protocol: {reason}")


class BadSettings(Refusal):
    """The chat template does not take what it was told."""

    code = "bad_template_settings"

    def __init__(self, reason: str) -> None:
        super().__init__(f"the chat template refuses these settings: {reason}")


class NotInThisBuild(Refusal):
    code = "not_in_this_build"
    status = 501

    def __init__(self, what: str) -> None:
        super().__init__(f"protocol: this build does not do {what} yet")


class StoreFailed(Refusal):
    """The disk would not take it. Later writes are tried again, so the daemon goes on once there is room."""

    code = "store_failed"
    status = 503

    def __init__(self, reason: str) -> None:
        super().__init__(f"io: the session log cannot be written: {reason}; nothing of this request was kept")


class ErasurePending(Refusal):
    """The purge is durable, but what it erased is still readable on the disk."""

    code = "erasure_pending"
    status = 503

    def __init__(self, session: int) -> None:
        super().__init__(
            f"io: session {session} was purged, but the disk would not take the erasing of its text; "
            "it happens with the next write that succeeds, or at the next start"
        )


class GenerationFailed(Refusal):
    code = "generation_failed"
    status = 500

    def __init__(self, reason: str) -> None:
        super().__init__(f"generation failed: {reason}")


class ReplyTooLong(Refusal):
    code = "reply_too_long"

    def __init__(self, bytes_: int) -> None:
        super().__init__(f"the reply has {bytes_} bytes, over the frame limit; read in pieces with a later cursor")


class QueueFull(Refusal):
    """Too many generations wait. `retry_after` is seconds."""

    code = "queue_full"
    status = 429

    def __init__(self, waiting: int, retry_after: int) -> None:
        super().__init__(f"protocol: {waiting} generations wait already; try again in {retry_after} s")
        self.retry_after = retry_after


class ShuttingDown(Refusal):
    code = "shutting_down"
    status = 503

    def __init__(self) -> None:
        super().__init__("protocol: the daemon is shutting down")


class BadTool(Refusal):
    """A tool declaration of AppendSystem that is none; the first one that is not (8.5)."""

    code = "bad_tool"

    def __init__(self, index: int, why: str) -> None:
        super().__init__(f"tool {index} is not a function declaration: {why}")


class NoToolCalls(Refusal):
    """The model cannot be given tools: what its template does about them is in `found`."""

    code = "no_tool_calls"

    def __init__(self, found: str) -> None:
        super().__init__(f"protocol: this model cannot call tools: {found}")


class NoFim(Refusal):
    """The model cannot fill in the middle; `missing` are the markers that its vocabulary lacks, by GGUF's names."""

    code = "no_fim"

    def __init__(self, missing: Sequence[str]) -> None:
        keys = ", ".join(f"tokenizer.ggml.{name}_token_id" for name in missing)
        super().__init__(
            f"protocol: this model has no FIM dialect: its file does not name {keys}, "
            "and its vocabulary has no marker of a known text for it"
        )


class BadLogDirective(Refusal):
    """The prefix of the message is what the original says."""

    code = "bad_log_directive"

    def __init__(self, reason: str) -> None:
        super().__init__(f"generation failed: {reason}; the log levels are as they were")


class UnknownCall(Refusal):
    code = "unknown_call"
    status = 404

    def __init__(self, call_id: int) -> None:
        super().__init__(f"tool call {call_id} is unknown or already closed")


class InheritedCall(Refusal):
    """The call was made before the fork: only the session that made it can answer it."""

    code = "inherited_call"

    def __init__(self, call_id: int) -> None:
        super().__init__(f"tool call {call_id} belongs to an ancestor's timeline")


class LeaseExpired(Refusal):
    """Answered beside a committed `ToolExpired`."""

    code = "lease_expired"
    status = 409

    def __init__(self, call_id: int) -> None:
        super().__init__(f"the lease of tool call {call_id} expired; recorded as expired, the result was not applied")


class LateResult(Refusal):
    """Answered beside a committed `ToolReconciliation`. `state` is how the call had ended."""

    code = "late_result"
    status = 409

    def __init__(self, call_id: int, state: str) -> None:
        super().__init__(
            f"tool call {call_id} is already terminal ({state}); recorded as a reconciliation, "
            "the result was not applied"
        )


class UnknownPermission(Refusal):
    code = "unknown_permission"
    status = 404

    def __init__(self, request_id: int) -> None:
        super().__init__(f"permission request {request_id} is unknown or already answered")


class PermissionPending(Refusal):
    code = "permission_pending"
    status = 409

    def __init__(self, session: int, requests: Iterable[int]) -> None:
        open_ = ", ".join(map(str, sorted(requests)))
        super().__init__(f"session {session} has an open permission request; answer request {open_} first")


class BadBlockKind(Refusal):
    code = "bad_block_kind"

    def __init__(self, kind: int) -> None:
        super().__init__(f"unknown block kind {kind}; 1 to 7 are known")
