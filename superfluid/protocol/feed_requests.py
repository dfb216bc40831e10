"""Extension requests about names, feeds, questions and flash queries. Field order is wire order.

A *feed* is a session into which data is pushed; every session can be one.
"""

from __future__ import annotations

from dataclasses import dataclass

from superfluid.protocol.records import GenParams
from superfluid.protocol.wire import F32, U32, U64


@dataclass(frozen=True, slots=True)
class Open:
    """Make a named session. Without `name` it gets one (`sess_...`); `window` caps its data in tokens."""

    name: str | None
    window: U64 | None
    pre_decode: bool


@dataclass(frozen=True, slots=True)
class Name:
    session: U64
    name: str


@dataclass(frozen=True, slots=True)
class Resolve:
    """Which session is called `name`; digits alone are an id."""

    name: str


@dataclass(frozen=True, slots=True)
class Names:
    """Which sessions have a name."""


@dataclass(frozen=True, slots=True)
class FeedState:
    session: U64


@dataclass(frozen=True, slots=True)
class Push:
    """Take in lines of data. Answered at once: they are ingested in the background."""

    session: U64
    data: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PushNumbered:
    """As Push, of a sender that numbers its entries; `first` is the number of the first one.

    A push that begins like its latest one, the answer to which it has lost, is answered like that one and not taken
    in again. Nothing is dropped for it: only as many entries are taken in as there is room for (`Pushed.pushed`), and
    the sender sends the others again.
    """

    session: U64
    data: tuple[str, ...]
    sender: U64
    first: U64


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask over the session without leaving a trace in it. Streams: AskPiece as text comes, then Answer.

    Without `max_tokens` the answer ends where the model ends it. Without `params` it is drawn at temperature 0.6 and
    top-p 0.9, with a fresh seed.
    `fast_answer` lists words, one of which may be answered without computing where the logit gap at the ready
    position is at least `gap_threshold`.
    """

    session: U64
    prompt: str
    max_tokens: U32 | None
    params: GenParams | None
    stop: tuple[str, ...]
    fast_answer: tuple[str, ...]
    gap_threshold: F32


@dataclass(frozen=True, slots=True)
class FlashAdd:
    """Register a standing question, which is answered again after every batch of data."""

    session: U64
    query: str
    max_tokens: U32


@dataclass(frozen=True, slots=True)
class FlashList:
    session: U64


@dataclass(frozen=True, slots=True)
class FlashRemove:
    session: U64
    id: U64


@dataclass(frozen=True, slots=True)
class FeedSubscribe:
    """Hear of ingested data and of answers to flash queries; ended by Unsubscribe."""

    session: U64


@dataclass(frozen=True, slots=True)
class Warm:
    """Compute the KV of the conversation that the next turn will send; `turns` are roles and texts."""

    session: U64
    turns: tuple[tuple[U32, str], ...]
