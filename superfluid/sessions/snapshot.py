"""A folded state as bytes, so that a long session need not be folded from its first record again.

A snapshot is a view: dropping it costs time only. It is the store's to keep, checksum and erase.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass

from superfluid.protocol import postcard
from superfluid.protocol.codes import LedgerState
from superfluid.protocol.errors import DecodeError
from superfluid.protocol.records import GenParams
from superfluid.protocol.ticks import pack, unpack
from superfluid.protocol.wire import F32, U8, U32, U64
from superfluid.sessions.calls import Call
from superfluid.sessions.feed import FeedState, Flash
from superfluid.sessions.said import Said
from superfluid.sessions.state import SessionState, Tail

EVERY = 1000
"""Records between two snapshots of a session."""

TOKENS = 1 << 18
"""Tokens put on the input between two; a record of data may bring thousands."""

VERSION = 3


@dataclass(frozen=True, slots=True)
class _Call:
    id: U64
    name: str
    arguments: str
    state: U8
    cancel_requested: bool
    lease_deadline_ms: U64 | None
    late_effects: U32


@dataclass(frozen=True, slots=True)
class _Said:
    role: U8
    text: str
    start: U64
    end: U64
    roles: U64
    tail: U8
    turn_start: U64
    calls: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class _Flash:
    id: U64
    query: str
    max_tokens: U32
    value: str | None
    version: U64
    confidence: F32
    answered_ms: U64
    ever: U64


@dataclass(frozen=True, slots=True)
class _Feed:
    name: str | None
    window: U64 | None
    pre_decode: bool
    version: U64
    entries: tuple[tuple[U64, U64], ...]
    detached: tuple[bytes, ...]
    ordinals: tuple[U64, ...]
    ingested: U64
    evicted: U64
    dropped: U64
    frozen_end: U64 | None
    flashes: tuple[_Flash, ...]
    last_flash: U64


@dataclass(frozen=True, slots=True)
class _Snapshot:
    version: U8
    id: U64
    parent: U64 | None
    fork_at: U64
    params: GenParams
    created_ms: U64
    epoch: U64
    events: U64
    tokens: bytes
    title: str | None
    archived: bool
    meta_version: U64
    generation: U64
    purged: bool
    qos: U8
    batch_invariant: bool
    pin_deadline_ms: U64
    fingerprint: U64 | None
    last_finish: U32
    tail: U8
    roles: bytes
    turn_start: U64
    calls: tuple[_Call, ...]
    permissions: tuple[U64, ...]
    ever: U64
    said: tuple[_Said, ...]
    turns: U64
    feed: _Feed


def due(before: tuple[int, int], state: SessionState) -> bool:
    """Whether folding has got much longer since there were so many events, and tokens ever."""
    events, ever = before
    return state.events // EVERY != events // EVERY or state.ever // TOKENS != ever // TOKENS


def dump(state: SessionState) -> bytes:
    """`state` as bytes that `load` understands."""
    calls = tuple(
        _Call(
            call_id,
            call.name,
            call.arguments,
            call.state,
            call.cancel_requested,
            call.lease_deadline_ms,
            call.late_effects,
        )
        for call_id, call in sorted(state.calls.items())
    )
    snapshot = _Snapshot(
        version=VERSION,
        id=state.id,
        parent=state.parent,
        fork_at=state.fork_at,
        params=state.params,
        created_ms=state.created_ms,
        epoch=state.epoch,
        events=state.events,
        tokens=pack(state.tokens),
        title=state.title,
        archived=state.archived,
        meta_version=state.meta_version,
        generation=state.generation,
        purged=state.purged,
        qos=state.qos,
        batch_invariant=state.batch_invariant,
        pin_deadline_ms=state.pin_deadline_ms,
        fingerprint=state.fingerprint,
        last_finish=state.last_finish,
        tail=state.tail,
        roles=bytes(state.roles),
        turn_start=state.turn_start,
        calls=calls,
        permissions=tuple(sorted(state.permissions)),
        ever=state.ever,
        said=tuple(_Said(m.role, m.text, m.start, m.end, m.roles, m.tail, m.turn_start, m.calls) for m in state.said),
        turns=state.turns,
        feed=_of_feed(state.feed),
    )
    return postcard.encode(_Snapshot, snapshot)


def load(data: bytes) -> SessionState:
    """The state behind `dump`. Raises DecodeError for anything else, other versions included."""
    if not data or data[0] != VERSION:
        raise DecodeError("a snapshot of another version")
    snapshot: _Snapshot = postcard.decode(_Snapshot, data)
    try:
        calls = {
            call.id: Call(
                call.name,
                call.arguments,
                LedgerState(call.state),
                call.cancel_requested,
                call.lease_deadline_ms,
                call.late_effects,
            )
            for call in snapshot.calls
        }
        tail, tokens = Tail(snapshot.tail), array("I", unpack(snapshot.tokens))
        said = [
            Said(m.role, m.text, m.start, m.end, m.roles, Tail(m.tail), m.turn_start, m.calls) for m in snapshot.said
        ]
        feed = _to_feed(snapshot.feed)
    except ValueError as fault:
        raise DecodeError(f"a snapshot with a value out of range: {fault}") from None
    return SessionState(
        id=snapshot.id,
        parent=snapshot.parent,
        fork_at=snapshot.fork_at,
        params=snapshot.params,
        created_ms=snapshot.created_ms,
        epoch=snapshot.epoch,
        events=snapshot.events,
        tokens=tokens,
        title=snapshot.title,
        archived=snapshot.archived,
        meta_version=snapshot.meta_version,
        generation=snapshot.generation,
        purged=snapshot.purged,
        qos=snapshot.qos,
        batch_invariant=snapshot.batch_invariant,
        pin_deadline_ms=snapshot.pin_deadline_ms,
        fingerprint=snapshot.fingerprint,
        last_finish=snapshot.last_finish,
        tail=tail,
        roles=list(snapshot.roles),
        turn_start=snapshot.turn_start,
        calls=calls,
        permissions=set(snapshot.permissions),
        ever=snapshot.ever,
        said=said,
        turns=snapshot.turns,
        feed=feed,
    )


def _of_feed(feed: FeedState) -> _Feed:
    return _Feed(
        name=feed.name,
        window=feed.window,
        pre_decode=feed.pre_decode,
        version=feed.version,
        entries=tuple(feed.entries),
        detached=tuple(pack(entry) for entry in feed.detached),
        ordinals=tuple(feed.ordinals),
        ingested=feed.ingested,
        evicted=feed.evicted,
        dropped=feed.dropped,
        frozen_end=feed.frozen_end,
        flashes=tuple(
            _Flash(
                flash_id,
                flash.query,
                flash.max_tokens,
                flash.value,
                flash.version,
                flash.confidence,
                flash.answered_ms,
                flash.ever,
            )
            for flash_id, flash in feed.flashes.items()
        ),
        last_flash=feed.last_flash,
    )


def _to_feed(feed: _Feed) -> FeedState:
    return FeedState(
        name=feed.name,
        window=feed.window,
        pre_decode=feed.pre_decode,
        version=feed.version,
        entries=list(feed.entries),
        detached=[array("I", unpack(entry)) for entry in feed.detached],
        ordinals=list(feed.ordinals),
        ingested=feed.ingested,
        evicted=feed.evicted,
        dropped=feed.dropped,
        frozen_end=feed.frozen_end,
        flashes={
            one.id: Flash(
                one.query, one.max_tokens, one.value, one.version, one.confidence, one.answered_ms, one.ever
            )
            for one in feed.flashes
        },
        last_flash=feed.last_flash,
    )
