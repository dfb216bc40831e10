"""Extension records of names, data and flash queries: the original protocol has none of them (decision 2).

Field order is the wire order.
"""

from __future__ import annotations

from dataclasses import dataclass

from superfluid.protocol.wire import F32, U32, U64, Span

ERASED = (1 << 32) - 1
"""Stands for each token of an entry that is erased; no vocabulary has it."""


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


def batch_of(body: Ingested | Erased) -> Ingested:
    """The batch that a record of data is, or was: of each entry that is erased, the length alone is true."""
    if isinstance(body, Ingested):
        return body
    gone = tuple(Entry("", (ERASED,) * length) for length in body.erased)
    return Ingested(body.version, body.head, gone + body.entries, body.evicted, body.dropped)
