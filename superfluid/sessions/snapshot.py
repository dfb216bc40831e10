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
from superfluid.protocol.wire import U8, U32, U64
from superfluid.sessions.calls import Call
from superfluid.sessions.state import SessionState, Tail

EVERY = 1000
"""Records between two snapshots of a session."""

VERSION = 1


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
    )
