"""Reading a session log: heads, records a page at a time, snapshots.

No read transaction is open between two steps, so that whoever writes can truncate the write-ahead log.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from typing import Any

from superfluid.protocol import postcard, records
from superfluid.protocol.errors import DecodeError
from superfluid.protocol.records import Event, EventBody, GenParams
from superfluid.sessions import snapshot
from superfluid.sessions.heads import FIRST_REQUEST, Head, Segment
from superfluid.sessions.state import SessionState
from superfluid.store import head_rows
from superfluid.store.errors import DamagedRecord, StoreError
from superfluid.store.rows import event_in, is_whole, stored

PAGE = 512
"""Records fetched in one step."""

_SELECT_RECORDS = (
    "SELECT event, epoch, ts, digest, body FROM records"
    " WHERE session = ? AND event >= ? AND event < ? AND erased = 0 ORDER BY event LIMIT ?"
)
_SELECT_BATCHES = (
    "SELECT event, epoch, ts, digest, body FROM records"
    " WHERE session = ? AND event >= ? AND event < ? AND erased = 0 AND substr(body, 1, 2) IN (?, ?) ORDER BY event"
)
_BATCHES = tuple(
    postcard.encode(EventBody, body)[:2]
    for body in (records.Ingested(0, (), (), 0, 0), records.Erased((), (), 0, (), 0, 0))
)
"""What the bodies of batches of data begin with."""

_SELECT_BIRTH = (
    "SELECT coalesce(max(event), 0) FROM records"
    " WHERE session = ? AND event < ? AND erased = 0 AND substr(body, 1, 1) IN (?, ?)"
)
_BIRTHS = tuple(
    postcard.encode(EventBody, body)[:1]
    for body in (records.Forked(0, 0, GenParams()), records.Rebased(0, 0, GenParams(), ()))
)
"""What the bodies begin with of the first records of sessions that inherit."""


class LogReader:
    """What one connection to a database says. Every method may raise StoreError."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._reader = connection

    def close(self) -> None:
        self._reader.close()

    @property
    def store_id(self) -> bytes:
        """Sixteen bytes minted with the database."""
        ((value,),) = self._read("SELECT value FROM facts WHERE name = 'store_id'", ())
        return bytes(value)

    def fact(self, name: str) -> bytes | None:
        """What was noted under that name about the whole log."""
        rows = self._read("SELECT value FROM facts WHERE name = ?", (name,))
        return bytes(rows[0][0]) if rows else None

    def fact_names(self, beginning: str) -> tuple[str, ...]:
        """The names that begin so, of what was noted about the whole log."""
        rows = self._read("SELECT name FROM facts WHERE substr(name, 1, ?) = ?", (len(beginning), beginning))
        return tuple(bytes(name).decode("utf-8", "replace") for (name,) in rows)

    def heads(self) -> tuple[Head, ...]:
        """Every session, ids ascending; tombstones included, but for those of requests."""
        rows = self._read(f"{head_rows.SELECT} WHERE id < ? OR NOT purged ORDER BY id", (FIRST_REQUEST,))
        return tuple(head_rows.from_row(row, self._word) for row in rows)

    def last_id(self) -> int:
        """The highest id that a session ever had; 0 where there was none."""
        ((found,),) = self._read("SELECT max(id) FROM heads", ())
        return found or 0

    def head(self, session: int) -> Head | None:
        """The head of one session, None where there is none."""
        rows = self._read(f"{head_rows.SELECT} WHERE id = ?", (session,))
        return head_rows.from_row(rows[0], self._word) if rows else None

    def last_ms(self, heads: Iterable[Head]) -> dict[int, int]:
        """By session, when its last record was written, in Unix milliseconds; only of sessions that inherit
        nothing, and whose last record is whole."""
        query = "SELECT event, epoch, ts, digest, body FROM records WHERE session = ? AND event = ? AND erased = 0"
        found: dict[int, int] = {}
        for head in heads:
            try:
                rows = self._read(query, (head.id, head.events - 1))
            except _CorruptPage:
                continue
            if rows and is_whole(head.id, *rows[0]):
                found[head.id] = rows[0][2]
        return found

    def read(self, segments: Iterable[Segment], *, bare: bool = False) -> Iterator[Event]:
        """The records of `segments`, in order, a page at a time; each `Rerooted` with its prefix, unless `bare`: that
        is all that comes before it, at once. Raises DamagedRecord at the first that is."""
        for segment in segments:
            yield from self._page_through(segment) if bare else self._expanded(segment)

    def batches(self, segment: Segment) -> tuple[Event, ...]:
        """The records in `segment` that bring data, in order, at once. Raises DamagedRecord."""
        rows = self._read(_SELECT_BATCHES, (segment.session, segment.start, segment.stop, *_BATCHES))
        return tuple(event_in(segment.session, row[0], row) for row in rows)

    def last_snapshot(self, session: int) -> int:
        """How many events the session's latest snapshot holds, 0 where there is none."""
        query = "SELECT coalesce(max(event), 0) FROM snapshots WHERE session = ? AND erased = 0"
        return int(self._read(query, (session,))[0][0])

    def snapshot(self, session: int, most: int) -> SessionState | None:
        """The session's latest snapshot of at most `most` events, None where there is none that is whole."""
        try:
            rows = self._read(
                "SELECT event, digest, state FROM snapshots WHERE session = ? AND event <= ? AND erased = 0"
                " ORDER BY event DESC LIMIT 1",
                (session, most),
            )
        except _CorruptPage:
            return None
        for event, digest, state in rows:
            if is_whole(session, event, 0, 0, digest, state):
                try:
                    return snapshot.load(state)
                except DecodeError:
                    return None
        return None

    def check(self) -> Iterator[DamagedRecord]:
        """Every damaged record of the whole log."""
        for head in self.heads():
            if head.purged:
                continue
            at = head.own_from
            while at < head.events:
                try:
                    for event in self._page_through(Segment(head.id, at, head.events)):
                        at = event.event_id + 1
                except DamagedRecord as damaged:
                    yield damaged
                    at = damaged.event + 1

    def _expanded(self, segment: Segment) -> Iterator[Event]:
        for event in self._page_through(segment):
            if isinstance(event.body, records.Rerooted) and not event.body.prefix:
                body = self._with_prefix(segment.session, event.event_id, event.body)
                yield Event(event.event_id, event.epoch, event.ts_unix_ms, body)
            else:
                yield event

    def _page_through(self, segment: Segment) -> Iterator[Event]:
        at = segment.start
        while at < segment.stop:
            rows = self._page(segment, at)
            for row in rows:
                yield event_in(segment.session, at, row)
                at += 1
            if not rows:
                raise DamagedRecord(segment.session, at)

    def _page(self, segment: Segment, at: int) -> list[tuple[Any, ...]]:
        """The next rows, one at least where there is one; DamagedRecord where SQLite cannot read the first."""
        for most in (PAGE, 1):
            try:
                return self._read(_SELECT_RECORDS, (segment.session, at, segment.stop, most))
            except _CorruptPage:
                continue
        raise DamagedRecord(segment.session, at)

    def _with_prefix(self, session: int, event_id: int, body: records.Rerooted) -> records.Rerooted:
        """`body` with what its session took over. Within it, an earlier `Rerooted` stays bare: its own prefix is the
        front of the same list."""
        ((inherited,),) = self._read("SELECT fork_at FROM heads WHERE id = ?", (session,))
        if event_id < inherited:
            # It was taken over itself, and is of the session whose beginning is the last one before it.
            ((inherited,),) = self._read(_SELECT_BIRTH, (session, event_id, *_BIRTHS))
        prefix = tuple(
            (event.event_id, stored(event.body)) for event in self._page_through(Segment(session, 0, inherited))
        )
        return records.Rerooted(body.purged_parent, prefix)

    def _word(self, session: int, key: int) -> str | None:
        """The title or the name in one record; None where it is damaged: the session says so when it is touched."""
        query = "SELECT event, epoch, ts, digest, body FROM records WHERE key = ? AND erased = 0"
        try:
            for row in self._read(query, (key,)):
                if is_whole(session, *row):
                    match postcard.decode(EventBody, row[4]):
                        case records.MetaUpdated(title=title):
                            return title
                        case records.Named(name=name):
                            return name
        except (_CorruptPage, DecodeError):
            pass
        return None

    def _read(self, query: str, values: tuple[int | str | bytes, ...]) -> list[tuple[Any, ...]]:
        try:
            return self._reader.execute(query, values).fetchall()
        except (sqlite3.Error, UnicodeDecodeError) as fault:  # the latter where SQLite quotes a damaged schema
            raise (_CorruptPage if is_corrupt(fault) else StoreError)(str(fault)) from fault


class _CorruptPage(StoreError):
    """SQLite itself found damage on the way to a row."""


def is_corrupt(fault: BaseException | None) -> bool:
    """Whether SQLite found damage."""
    return getattr(fault, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_CORRUPT
