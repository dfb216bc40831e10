"""The 35 requests of the session API, in wire order (spec: wire-facts, section 2), and our extensions."""

from __future__ import annotations

from dataclasses import dataclass

from superfluid.protocol.codes import PurgeMode
from superfluid.protocol.feed_requests import (
    Ask,
    FeedState,
    FeedSubscribe,
    FlashAdd,
    FlashList,
    FlashRemove,
    Name,
    Names,
    Open,
    Push,
    PushNumbered,
    Resolve,
    Warm,
)
from superfluid.protocol.records import GenParams, RebaseEdit
from superfluid.protocol.wire import U8, U32, U64


@dataclass(frozen=True, slots=True)
class Create:
    parent: U64 | None
    params: GenParams


@dataclass(frozen=True, slots=True)
class Append:
    session: U64
    text: str | None
    span: tuple[U32, ...]


@dataclass(frozen=True, slots=True)
class AppendMessage:
    session: U64
    role: U32
    text: str


@dataclass(frozen=True, slots=True)
class Generate:
    session: U64
    max_tokens: U32


@dataclass(frozen=True, slots=True)
class Read:
    session: U64
    cursor: U64


@dataclass(frozen=True, slots=True)
class AppendToolResult:
    session: U64
    call_id: U64
    content: str


@dataclass(frozen=True, slots=True)
class OpenToolCalls:
    session: U64


@dataclass(frozen=True, slots=True)
class List:
    pass


@dataclass(frozen=True, slots=True)
class Cancel:
    session: U64


@dataclass(frozen=True, slots=True)
class Subscribe:
    session: U64
    cursor: U64
    provisional: bool


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    sub: U64


@dataclass(frozen=True, slots=True)
class Fork:
    session: U64
    at_event: U64
    params: GenParams | None


@dataclass(frozen=True, slots=True)
class Tree:
    pass


@dataclass(frozen=True, slots=True)
class Sessions:
    include_archived: bool


@dataclass(frozen=True, slots=True)
class SetMeta:
    session: U64
    expected_version: U64
    title: str | None
    archived: bool | None


@dataclass(frozen=True, slots=True)
class Rebase:
    session: U64
    edits: tuple[RebaseEdit, ...]
    params: GenParams | None


@dataclass(frozen=True, slots=True)
class Purge:
    session: U64
    expected_generation: U64
    mode: PurgeMode


@dataclass(frozen=True, slots=True)
class SetQos:
    session: U64
    class_: U8
    batch_invariant: bool


@dataclass(frozen=True, slots=True)
class SetBackgroundRate:
    divisor: U32


@dataclass(frozen=True, slots=True)
class Inspect:
    session: U64


@dataclass(frozen=True, slots=True)
class SetLogLevel:
    directive: str


@dataclass(frozen=True, slots=True)
class Metrics:
    pass


@dataclass(frozen=True, slots=True)
class AppendBlock:
    session: U64
    role: U32
    kind: U32
    payload: str


@dataclass(frozen=True, slots=True)
class RequestPermission:
    session: U64
    call_id: U64
    text: str


@dataclass(frozen=True, slots=True)
class RespondPermission:
    session: U64
    request_id: U64
    granted: bool


@dataclass(frozen=True, slots=True)
class RequestToolCancel:
    session: U64
    call_id: U64


@dataclass(frozen=True, slots=True)
class AppendToolOutcome:
    session: U64
    call_id: U64
    outcome: U8
    note: str


@dataclass(frozen=True, slots=True)
class Ledger:
    session: U64


@dataclass(frozen=True, slots=True)
class PutMedia:
    bytes_: bytes
    mime: str


@dataclass(frozen=True, slots=True)
class AppendImage:
    session: U64
    role: U32
    blob: str
    pre_text: str
    post_text: str


@dataclass(frozen=True, slots=True)
class GcMedia:
    pass


@dataclass(frozen=True, slots=True)
class Complete:
    prefix: str
    suffix: str
    mode: U8
    max_tokens: U32


@dataclass(frozen=True, slots=True)
class Trim:
    session: U64
    to_event: U64


@dataclass(frozen=True, slots=True)
class Pin:
    session: U64
    ttl_ms: U64


@dataclass(frozen=True, slots=True)
class AppendSystem:
    session: U64
    text: str | None
    tools: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Status:
    """Extension: what the daemon is doing now."""


Request = (
    Create
    | Append
    | AppendMessage
    | Generate
    | Read
    | AppendToolResult
    | OpenToolCalls
    | List
    | Cancel
    | Subscribe
    | Unsubscribe
    | Fork
    | Tree
    | Sessions
    | SetMeta
    | Rebase
    | Purge
    | SetQos
    | SetBackgroundRate
    | Inspect
    | SetLogLevel
    | Metrics
    | AppendBlock
    | RequestPermission
    | RespondPermission
    | RequestToolCancel
    | AppendToolOutcome
    | Ledger
    | PutMedia
    | AppendImage
    | GcMedia
    | Complete
    | Trim
    | Pin
    | AppendSystem
    # Extensions, from variant index 128 up.
    | Status
    | Open
    | Name
    | Resolve
    | FeedState
    | Push
    | Ask
    | FlashAdd
    | FlashList
    | FlashRemove
    | FeedSubscribe
    | Warm
    | Names
    | PushNumbered
)
