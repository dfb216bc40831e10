"""Records as rows: how one is written, what it is checked by, and how it is read back."""

from __future__ import annotations

import hashlib
from typing import Any

from superfluid.protocol import postcard, records
from superfluid.protocol.errors import DecodeError
from superfluid.protocol.records import Event, EventBody
from superfluid.store.errors import DamagedRecord


def stored(body: EventBody) -> EventBody:
    """What is written of `body`: the prefix of a `Rerooted` lies beside it, as records of the session itself."""
    return records.Rerooted(body.purged_parent, ()) if isinstance(body, records.Rerooted) else body


def event_in(session: int, due: int, row: tuple[Any, ...]) -> Event:
    """The event in a row (event, epoch, ts, digest, body), whose id has to be `due`. Raises DamagedRecord."""
    event_id, epoch, ts, digest, body = row
    if event_id != due or not is_whole(session, event_id, epoch, ts, digest, body):
        raise DamagedRecord(session, due)
    try:
        return Event(event_id, epoch, ts, postcard.decode(EventBody, body))
    except DecodeError:
        raise DamagedRecord(session, due) from None


def is_whole(session: int, event: Any, epoch: Any, ts: Any, digest: Any, body: Any) -> bool:
    """Whether a row is what was written. After damage, its columns may be of any type."""
    numbers = all(type(number) is int and number >= 0 for number in (event, epoch, ts))
    return numbers and type(body) is bytes and digest == digest_of(session, event, epoch, ts, body)


def digest_of(session: int, event: int, epoch: int, ts: int, body: bytes) -> bytes:
    """The checksum of a row, of 8 bytes."""
    place = b"".join(number.to_bytes(8, "little") for number in (session, event, epoch, ts))
    return hashlib.blake2b(place + body, digest_size=8).digest()
