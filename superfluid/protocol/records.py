"""The records of a session log and the envelope that gives them an id (spec: wire-facts, sections 4 and 5).

Field order is the wire order. `span` is always the token ids that a record put on the model's input. The records of
feeds are an extension: the original protocol has none of them (decision 2).
"""

from __future__ import annotations

from dataclasses import dataclass

from superfluid.protocol.codes import PurgeMode
from superfluid.protocol.wire import F32, U8, U32, U64

Span = tuple[U32, ...]

ERASED = (1 << 32) - 1
"""Stands for each token of an entry that is erased; no vocabulary has it."""


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


# --- feeds --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Named:
    """The session's name from now on; no two living sessions have the same."""

    name: str


@dataclass(frozen=True, slots=True)
class FeedOpened:
    """How data is taken in: `window` caps its tokens, None is append-only."""

    window: U64 | None
    pre_decode: bool


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of data. An empty span: newer ones pushed it out before it was computed."""

    text: str
    span: Span


@dataclass(frozen=True, slots=True)
class Ingested:
    """A batch of data, or what became of it. `version` is the data version from now on.

    First the oldest entries leave the stream: `evicted` less those of `entries` that have no span. Then `head`, which
    opens a user turn where none holds data yet, and the entries' spans go on the input. `dropped` counts the entries
    since the last batch that never got this far.
    """

    version: U64
    head: Span
    entries: tuple[Entry, ...]
    evicted: U64
    dropped: U64


@dataclass(frozen=True, slots=True)
class Erased:
    """What is left of an `Ingested`, in its place, once the log keeps no more of what left the stream long ago.

    `entries` are those that are left, the last of the batch. `erased` has the number of tokens of each one before
    them, 0 where it had no span. The other fields are as they were.
    """

    entries: tuple[Entry, ...]
    erased: tuple[U32, ...]
    version: U64
    head: Span
    evicted: U64
    dropped: U64


@dataclass(frozen=True, slots=True)
class Rewound:
    """The conversation goes on after its first `messages` messages: what came later leaves the stream, data that
    stood there is set aside for `Restored`."""

    messages: U64
    version: U64


@dataclass(frozen=True, slots=True)
class Restored:
    """Data that a `Rewound` set aside is on the input again, after `head`, which opens a turn for it."""

    head: Span


@dataclass(frozen=True, slots=True)
class FlashAdded:
    """A standing question. Ids count up and are not used again."""

    id: U64
    query: str
    max_tokens: U32


@dataclass(frozen=True, slots=True)
class FlashRemoved:
    id: U64


@dataclass(frozen=True, slots=True)
class FlashAnswered:
    """The answer over the data of `data_version`; `confidence` is the logit gap of its first token."""

    id: U64
    value: str
    data_version: U64
    confidence: F32


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


def batch_of(body: Ingested | Erased) -> Ingested:
    """The batch that a record of data is, or was: of each entry that is erased, the length alone is true."""
    if isinstance(body, Ingested):
        return body
    gone = tuple(Entry("", (ERASED,) * length) for length in body.erased)
    return Ingested(body.version, body.head, gone + body.entries, body.evicted, body.dropped)


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
