"""The 27 responses of the session API, in wire order (spec: wire-facts, sections 3 and 5), and our extensions."""

from __future__ import annotations

from dataclasses import dataclass

from superfluid.protocol.feed_responses import (
    Answer,
    AskPiece,
    Feed,
    FeedEvent,
    Flash,
    Flashes,
    FlashGone,
    Names,
    Opened,
    Pushed,
    Resolved,
    Warmed,
)
from superfluid.protocol.records import Event, GenParams
from superfluid.protocol.wire import F32, U8, U32, U64

Call = tuple[U64, str, str]
"""An open tool call: call id, name, arguments as JSON text."""

Node = tuple[U64, U64 | None, U64]
"""A session in the tree: id, parent, event at which it was forked."""


@dataclass(frozen=True, slots=True)
class StoreId:
    """Sixteen bytes that name a session store for ever."""

    value: bytes


@dataclass(frozen=True, slots=True)
class Resident:
    """The session is generating."""


@dataclass(frozen=True, slots=True)
class Parked:
    covered: U64
    encoding: U8


@dataclass(frozen=True, slots=True)
class Cold:
    """Nothing of the session's KV is known to be kept."""


Tier = Resident | Parked | Cold


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """`events` and `tokens` are lengths, inherited part included; `parent` is None once rerooted."""

    id: U64
    parent: U64 | None
    fork_at: U64
    title: str | None
    archived: bool
    meta_version: U64
    generation: U64
    events: U64
    tokens: U64
    open_tool_calls: U64


@dataclass(frozen=True, slots=True)
class SessionInspection:
    """Everything about one session; the wire calls this Inspection."""

    summary: SessionSummary
    params: GenParams
    epoch: U64
    last_finish: U32
    qos_class: U8
    batch_invariant: bool
    pin_deadline_unix_ms: U64
    behavior_fingerprint: U64 | None
    open_tool_calls: tuple[Call, ...]
    tier: Tier
    tokens: tuple[U32, ...]
    events: tuple[Event, ...]
    wal_version: U8
    store_id: StoreId | None = None


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    name: str
    arguments: str
    state: U8
    cancel_requested: bool
    lease_deadline_unix_ms: U64 | None
    late_effects: U32


@dataclass(frozen=True, slots=True)
class Created:
    session: U64


@dataclass(frozen=True, slots=True)
class Delta:
    event: Event


@dataclass(frozen=True, slots=True)
class Cancelling:
    pass


@dataclass(frozen=True, slots=True)
class Committed:
    event: Event


@dataclass(frozen=True, slots=True)
class Generated:
    """The end of a generation; not the record of the same name."""

    events: tuple[Event, ...]
    tokens_generated: U32
    finish: U32
    warm_prefix: U64


@dataclass(frozen=True, slots=True)
class Events:
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class Sessions:
    ids: tuple[U64, ...]


@dataclass(frozen=True, slots=True)
class ToolCalls:
    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True)
class Subscribed:
    sub: U64


@dataclass(frozen=True, slots=True)
class SubEvent:
    sub: U64
    event: Event


@dataclass(frozen=True, slots=True)
class SubProvisional:
    sub: U64
    channel: U32
    text: str


@dataclass(frozen=True, slots=True)
class SubEnded:
    sub: U64
    reason: str


@dataclass(frozen=True, slots=True)
class Unsubscribed:
    pass


@dataclass(frozen=True, slots=True)
class Err:
    message: str


@dataclass(frozen=True, slots=True)
class Tree:
    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class SessionList:
    sessions: tuple[SessionSummary, ...]


@dataclass(frozen=True, slots=True)
class Meta:
    version: U64


@dataclass(frozen=True, slots=True)
class Purged:
    sessions: tuple[U64, ...]


@dataclass(frozen=True, slots=True)
class Ack:
    pass


@dataclass(frozen=True, slots=True)
class Inspection:
    inspection: SessionInspection


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class Ledger:
    entries: tuple[tuple[U64, LedgerEntry], ...]


@dataclass(frozen=True, slots=True)
class Media:
    hash: str


@dataclass(frozen=True, slots=True)
class Gc:
    kept: U64
    removed: U64


@dataclass(frozen=True, slots=True)
class Completion:
    text: str
    tokens: tuple[U32, ...]
    cached: bool
    expired: bool


@dataclass(frozen=True, slots=True)
class Pinned:
    deadline_unix_ms: U64


@dataclass(frozen=True, slots=True)
class Throttled:
    retry_after_ms: U64


@dataclass(frozen=True, slots=True)
class LaneStatus:
    """One generation that runs. `remaining` is prompt tokens still to compute, `drawn` what it drew so far."""

    session: U64
    qos_class: U8
    prompt: U64
    warm: U64
    remaining: U64
    drawn: U32


@dataclass(frozen=True, slots=True)
class StatusReport:
    """What the daemon is doing now. Rates are tokens a second over the last ticks, sizes bytes, times seconds.

    `queue` counts what waits, by class; `kv_sessions` and `kv_tokens` what KV is held, by tier: sequences, host
    memory, disk.
    """

    version: str
    pid: U32
    uptime: U64
    model: str
    model_path: str
    devices: tuple[str, ...]
    gpu_layers: U32
    threads: U32
    context: U64
    lanes: U32
    running: tuple[LaneStatus, ...]
    queue: tuple[U32, U32, U32, U32]
    kv_sessions: tuple[U32, U32, U32]
    kv_tokens: tuple[U64, U64, U64]
    prefill_rate: F32
    decode_rate: F32
    sessions: U64
    respawns: U32
    ticks: U64


Response = (
    Created
    | Delta
    | Cancelling
    | Committed
    | Generated
    | Events
    | Sessions
    | ToolCalls
    | Subscribed
    | SubEvent
    | SubProvisional
    | SubEnded
    | Unsubscribed
    | Err
    | Tree
    | SessionList
    | Meta
    | Purged
    | Ack
    | Inspection
    | Text
    | Ledger
    | Media
    | Gc
    | Completion
    | Pinned
    | Throttled
    # Extensions, from variant index 128 up.
    | StatusReport
    | Opened
    | Resolved
    | Feed
    | Pushed
    | AskPiece
    | Answer
    | Flash
    | Flashes
    | FlashGone
    | FeedEvent
    | Warmed
    | Names
)
