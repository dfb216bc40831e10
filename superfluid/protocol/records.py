"""The records of a session log and the envelope that gives them an id (spec: wire-facts, sections 4 and 5).

Field order is the wire order. `span` is always the token ids that a record put on the model's input. The records of
feeds, an extension, are in `feed_records`.
"""

from __future__ import annotations

from dataclasses import dataclass

from superfluid.protocol.codes import PurgeMode
from superfluid.protocol.feed_records import (
    ERASED,  # noqa: F401 - found here with the records that it stands in
    Entry,  # noqa: F401 - likewise
    Erased,
    FeedOpened,
    FlashAdded,
    FlashAnswered,
    FlashRemoved,
    Ingested,
    Named,
    Restored,
    Rewound,
    batch_of,
)
from superfluid.protocol.wire import F32, U8, U32, U64, Span


@dataclass(frozen=True, slots=True)
class GenParams:
    """Sampling parameters. `temperature` 0 is greedy, `top_k` 0 is off, a seed of 0 is the seed 0."""

    temperature: F32 = 0.0
    top_p: F32 = 0.0
    min_p: F32 = 0.0
    top_k: U32 = 0
    seed: U64 = 0


@dataclass(frozen=True, slots=True)
class Drop:
    """A rebase edit: leave out the events `from_` to `to - 1`. The wire calls the first field `from`."""

    from_: U64
    to: U64


@dataclass(frozen=True, slots=True)
class Replace:
    """A rebase edit: put one message in the place of the events `from_` to `to - 1`."""

    from_: U64
    to: U64
    role: U32
    text: str


RebaseEdit = Drop | Replace


@dataclass(frozen=True, slots=True)
class Created:
    parent: U64 | None
    params: GenParams


@dataclass(frozen=True, slots=True)
class Appended:
    text: str | None
    span: Span


@dataclass(frozen=True, slots=True)
class Message:
    role: U32
    text: str
    span: Span


@dataclass(frozen=True, slots=True)
class GenerationPrompt:
    """The assistant header that a turn opened with."""

    span: Span


@dataclass(frozen=True, slots=True)
class Generated:
    span: Span
    text: str
    channel: U32
    finish: U32


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A call that the model made. Its event id is the call id; `arguments` is JSON text."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolResult:
    call_id: U64
    content: str
    span: Span


@dataclass(frozen=True, slots=True)
class EpochBump:
    """The first write to a session after a restart of the daemon."""


@dataclass(frozen=True, slots=True)
class GenerationFingerprint:
    """Digest of what shapes a generation besides its input; committed where it differs from the last one."""

    digest: U64


@dataclass(frozen=True, slots=True)
class ToolParseFailure:
    raw: str


@dataclass(frozen=True, slots=True)
class Forked:
    parent: U64
    fork_at: U64
    params: GenParams


@dataclass(frozen=True, slots=True)
class MetaUpdated:
    version: U64
    title: str | None
    archived: bool | None


@dataclass(frozen=True, slots=True)
class Rebased:
    parent: U64
    fork_at: U64
    params: GenParams
    edits: tuple[RebaseEdit, ...]


@dataclass(frozen=True, slots=True)
class ToolExpired:
    call_id: U64
    reason: str


@dataclass(frozen=True, slots=True)
class Purged:
    generation: U64
    descendants: PurgeMode


@dataclass(frozen=True, slots=True)
class Rerooted:
    """The parent was purged; `prefix` holds what this session had inherited, by event id."""

    purged_parent: U64
    prefix: tuple[tuple[U64, EventBody], ...]


@dataclass(frozen=True, slots=True)
class QosSet:
    class_: U8
    batch_invariant: bool


@dataclass(frozen=True, slots=True)
class Block:
    role: U32
    kind: U32
    payload: str
    span: Span
    visibility_version: U32


@dataclass(frozen=True, slots=True)
class PermissionRequest:
    call_id: U64
    text: str


@dataclass(frozen=True, slots=True)
class PermissionResponse:
    request_id: U64
    granted: bool


@dataclass(frozen=True, slots=True)
class ToolCancelRequested:
    call_id: U64


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    call_id: U64
    outcome: U8
    note: str


@dataclass(frozen=True, slots=True)
class ToolReconciliation:
    call_id: U64
    note: str


@dataclass(frozen=True, slots=True)
class ToolLease:
    call_id: U64
    deadline_unix_ms: U64


@dataclass(frozen=True, slots=True)
class Pinned:
    deadline_unix_ms: U64


EventBody = (
    Created
    | Appended
    | Message
    | GenerationPrompt
    | Generated
    | ToolUse
    | ToolResult
    | EpochBump
    | GenerationFingerprint
    | ToolParseFailure
    | Forked
    | MetaUpdated
    | Rebased
    | ToolExpired
    | Purged
    | Rerooted
    | QosSet
    | Block
    | PermissionRequest
    | PermissionResponse
    | ToolCancelRequested
    | ToolOutcome
    | ToolReconciliation
    | ToolLease
    | Pinned
    | Named
    | FeedOpened
    | Ingested
    | Rewound
    | Restored
    | FlashAdded
    | FlashRemoved
    | FlashAnswered
    | Erased
)


@dataclass(frozen=True, slots=True)
class Event:
    """One committed record. `event_id` is dense from 0 within a session; the wire calls this EventMsg."""

    event_id: U64
    epoch: U64
    ts_unix_ms: U64
    body: EventBody


def span_of(body: EventBody) -> Span:
    """The token ids that `body` brings to the model's input; empty for records outside the stream."""
    match body:
        case (
            Appended(span=span)
            | Message(span=span)
            | GenerationPrompt(span=span)
            | Generated(span=span)
            | ToolResult(span=span)
            | Block(span=span)
            | Restored(head=span)
        ):
            return span
        case Ingested(head=head, entries=entries):
            return (*head, *(token for entry in entries for token in entry.span))
        case Erased():
            return span_of(batch_of(body))
        case _:
            return ()


def size_of(body: EventBody) -> int:
    """How long a record is, roughly: the token ids and the characters of all that may be long in it."""
    match body:
        case (
            Appended(text=text, span=span)
            | Message(text=text, span=span)
            | Generated(text=text, span=span)
            | ToolResult(content=text, span=span)
            | Block(payload=text, span=span)
        ):
            return len(text or "") + len(span)
        case ToolUse(arguments=text) | ToolParseFailure(raw=text) | PermissionRequest(text=text):
            return len(text)
        case Ingested(entries=entries) | Erased(entries=entries):
            return sum(len(entry.text) + len(entry.span) for entry in entries)
        case Rerooted(prefix=prefix):
            return len(prefix) + sum(size_of(inherited) for _, inherited in prefix)
        case _:
            return 0
