"""Extension responses about names, feeds, questions and flash queries. Field order is wire order.

Times are Unix seconds, sizes bytes. A `data_version` counts the durable changes of a session's data.
"""

from __future__ import annotations

from dataclasses import dataclass

from superfluid.protocol.wire import F32, U32, U64


@dataclass(frozen=True, slots=True)
class FeedReport:
    """A session as the streaming API shows it (spec: streaming-facts, section 2).

    `total_pushed` is the ordinal of the last entry that was ever accepted; entries up to the ordinal `taken` are
    ingested or dropped for good, durably. `run` is drawn when a daemon starts and tells it from the one before, whose
    queue is gone; `base` is the `taken` at which this daemon went on counting. `ready_token` and `ready_gap` are
    there while `ready`; `frozen_end`, the position of the first data token, once there is one.
    """

    session: U64
    name: str | None
    created: U64
    last_used: U64
    tokens: U64
    kv_tokens: U64
    busy: bool
    turns: U64
    data_end: U64
    data_version: U64
    pending: U64
    pre_decode: bool
    ready: bool
    evicted: U64
    window: U64 | None
    frozen_end: U64 | None
    ready_token: U32 | None
    ready_gap: F32 | None
    taken: U64
    total_pushed: U64
    total_dropped: U64
    pending_bytes: U64
    run: U64
    base: U64


@dataclass(frozen=True, slots=True)
class FlashEntry:
    """A flash query (spec: streaming-facts, section 5). The last four fields are None before its first answer.

    `tokens` are the query's own; `confidence` is the logit gap of the answer's first token.
    """

    id: U64
    query: str
    max_tokens: U32
    tokens: U64
    fresh: bool
    value: str | None
    data_version: U64 | None
    confidence: F32 | None
    evaluated_at: U64 | None


@dataclass(frozen=True, slots=True)
class Opened:
    session: U64
    name: str


@dataclass(frozen=True, slots=True)
class Resolved:
    session: U64


@dataclass(frozen=True, slots=True)
class Names:
    """Sessions and their names, in the order in which the sessions were made."""

    names: tuple[tuple[U64, str], ...]


@dataclass(frozen=True, slots=True)
class Feed:
    feed: FeedReport


@dataclass(frozen=True, slots=True)
class Pushed:
    """An acknowledgement: accepted, not yet durable. `pushed` and `dropped` are this push's own.

    The entries of this push have the ordinals up to `total_pushed`; see FeedReport for `taken`.
    """

    pushed: U64
    dropped: U64
    pending: U64
    pending_bytes: U64
    total_pushed: U64
    total_dropped: U64
    data_version: U64
    taken: U64


@dataclass(frozen=True, slots=True)
class AskPiece:
    text: str


@dataclass(frozen=True, slots=True)
class Answer:
    """The end of an answer. `finish` is 1 at the model's own end or a stop text, 2 where the answer was cut, 4 where
    it was cancelled.

    `flash_id` and `confidence` are there where a flash query's answer served, `logit_gap` where a fast answer did;
    both cost no tokens.
    """

    text: str
    finish: U32
    data_version: U64
    prompt_tokens: U64
    completion_tokens: U64
    cached_tokens: U64
    flash_id: U64 | None
    confidence: F32 | None
    logit_gap: F32 | None


@dataclass(frozen=True, slots=True)
class Flash:
    entry: FlashEntry


@dataclass(frozen=True, slots=True)
class Flashes:
    entries: tuple[FlashEntry, ...]
    data_version: U64


@dataclass(frozen=True, slots=True)
class FlashGone:
    """`remaining` counts the flash queries that are left."""

    id: U64
    remaining: U64


@dataclass(frozen=True, slots=True)
class Connected:
    """The first event of a feed subscription; `flash_queries` counts those registered, answered or not."""

    session: U64
    name: str | None
    data_version: U64
    flash_queries: U32


@dataclass(frozen=True, slots=True)
class FlashReady:
    """An answer: one that was there at the subscription's start, then each that changed."""

    id: U64
    query: str
    value: str
    data_version: U64
    confidence: F32


@dataclass(frozen=True, slots=True)
class DataUpdated:
    """The session's data changed. `tokens` is the length of its stream, `pending` what still waits."""

    data_version: U64
    tokens: U64
    pending: U64


FeedNews = Connected | FlashReady | DataUpdated


@dataclass(frozen=True, slots=True)
class FeedEvent:
    sub: U64
    event: FeedNews


@dataclass(frozen=True, slots=True)
class Warmed:
    """`finish` is `warmed`, `cancelled`, or `covered` where nothing had to be computed."""

    finish: str
    prompt_tokens: U64
    cached_tokens: U64
    prefix_cached_tokens: U64
    data_version: U64
