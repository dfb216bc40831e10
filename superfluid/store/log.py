"""The session log: records appended in transactions, read back in pages, erased when a session is purged.

"Committed" means: SQLite's transaction returned with `synchronous = FULL` in WAL mode. It survives the process being
killed at any instruction, and the machine losing power as far as the disk keeps its word (design decision 6).

Synchronous. One thread at a time may write, one (another) may read; the daemon keeps one thread for each.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from superfluid.protocol import postcard, records
from superfluid.protocol.errors import DecodeError
from superfluid.protocol.records import Event, EventBody
from superfluid.sessions import snapshot
from superfluid.sessions.heads import FIRST_REQUEST, Head, Segment
from superfluid.sessions.state import SessionState
from superfluid.store import head_rows
from superfluid.store.errors import DamagedRecord, StoreError
from superfluid.store.rows import digest_of, event_in, is_whole, stored
from superfluid.store.schema import ERASING, connect, erase_copies

PAGE = 512
"""Records fetched in one step. Between steps no read transaction is open, so that a checkpoint can truncate."""

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


@dataclass(frozen=True, slots=True)
class Change:
    """What one transaction does to one session: its new records, in order, and its head after them."""

    head: Head
    events: tuple[Event, ...]
    snapshot: bytes | None = None
    """`snapshot.dump` of the state after `events`, where one is due"""


@dataclass(frozen=True, slots=True)
class Reroot:
    """A child that outlives its parent: it takes `inherited` over as records of its own, then `change` applies."""

    change: Change
    inherited: tuple[Segment, ...]


class SessionLog:
    """One database. Every method may raise StoreError; after it, the database is as before the call."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer = connect(path, writer=True)
        try:
            self._reader = connect(path, writer=False)
        except StoreError:
            self._writer.close()
            raise
        try:
            # A purge that was killed before its own truncation left what it erased in the write-ahead log.
            self.truncate()
        except StoreError:
            pass  # a full disk, or somebody who reads: neither keeps the log from being read

    def close(self) -> None:
        self._reader.close()
        self._writer.close()

    @property
    def store_id(self) -> bytes:
        """Sixteen bytes minted with the database."""
        ((value,),) = self._read("SELECT value FROM facts WHERE name = 'store_id'", ())
        return bytes(value)

    def fact(self, name: str) -> bytes | None:
        """What was noted under that name about the whole log."""
        rows = self._read("SELECT value FROM facts WHERE name = ?", (name,))
        return bytes(rows[0][0]) if rows else None

    # --- writing --------------------------------------------------------------------------------------------------

    def set_fact(self, name: str, value: bytes) -> None:
        """Note something about the whole log, instead of what was noted before."""
        with _Transaction(self._writer):
            self._writer.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, value))

    def commit(self, changes: Iterable[Change]) -> None:
        """All of `changes` in one transaction, durable when this returns."""
        with _Transaction(self._writer):
            for change in changes:
                self._write(change)

    def purge(self, purged: Iterable[Change], rerooted: Iterable[Reroot]) -> None:
        """One transaction that erases the sessions in `purged` and cuts their living children loose.

        Returns once the texts and tokens are in no file of the database: overwritten in place, the write-ahead log
        truncated, copies of older versions removed. Raises StoreError also where only one of the latter failed; the
        purge is durable then.
        """
        with _Transaction(self._writer):
            for reroot in rerooted:
                for segment in reroot.inherited:
                    self._copy(segment, reroot.change.head.id)
                self._write(reroot.change)
            for change in purged:
                self._erase(change.head.id)
                self._write(change)
        self.erase_rest()

    def erase_rest(self) -> None:
        """Leave nothing that was purged in copies of older versions or in the write-ahead log."""
        try:
            erase_copies(self._path)
        except OSError as fault:
            raise StoreError(f"{fault.filename}: {fault.strerror}") from fault
        self.truncate()

    def erase_data(self, session: int, erased: Iterable[Event]) -> None:
        """One transaction that puts what is left of a session's batches in their place. It is durable when this
        returns; `erase_rest` then leaves nothing of what they were."""
        with _Transaction(self._writer):
            for event in erased:
                self._overwrite(session, event)
            self._writer.execute(f"PRAGMA user_version = {ERASING}")

    def truncate(self) -> None:
        """Empties the write-ahead log into the database."""
        try:
            busy, _, _ = self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except sqlite3.Error as fault:
            raise StoreError(str(fault)) from fault
        if busy:
            raise StoreError("the write-ahead log could not be truncated: a reader is in its way")

    def _write(self, change: Change) -> None:
        title_key = name_key = None
        for event in change.events:
            body = postcard.encode(EventBody, stored(event.body))
            session = change.head.id
            cursor = self._writer.execute(
                "INSERT INTO records (session, event, epoch, ts, digest, body) VALUES (?, ?, ?, ?, ?, ?)",
                (
                    session,
                    event.event_id,
                    event.epoch,
                    event.ts_unix_ms,
                    digest_of(session, event.event_id, event.epoch, event.ts_unix_ms, body),
                    body,
                ),
            )
            if isinstance(event.body, records.MetaUpdated) and event.body.title is not None:
                title_key = cursor.lastrowid
            elif isinstance(event.body, records.Named):
                name_key = cursor.lastrowid
        self._put_head(change.head, title_key, name_key)
        if change.snapshot is not None:
            self._put_snapshot(change.head, change.snapshot)

    def _put_head(self, head: Head, title_key: int | None, name_key: int | None) -> None:
        keys = self._writer.execute(head_rows.SELECT_KEYS, (head.id,)).fetchone() or (None, None)
        title_key = (title_key or keys[0]) if head.title is not None else None
        name_key = (name_key or keys[1]) if head.feed.name is not None else None
        self._writer.execute(head_rows.INSERT, head_rows.to_row(head, title_key, name_key))

    def _put_snapshot(self, head: Head, state: bytes) -> None:
        self._erase_snapshots(head.id)
        self._writer.execute(
            "INSERT INTO snapshots (session, event, digest, state) VALUES (?, ?, ?, ?)",
            (head.id, head.events, digest_of(head.id, head.events, 0, 0, state), state),
        )

    def _copy(self, segment: Segment, child: int) -> None:
        for event in self._expanded(self._writer, segment):
            body = postcard.encode(EventBody, event.body)
            digest = digest_of(child, event.event_id, event.epoch, event.ts_unix_ms, body)
            self._writer.execute(
                "INSERT INTO records (session, event, epoch, ts, digest, body) VALUES (?, ?, ?, ?, ?, ?)",
                (child, event.event_id, event.epoch, event.ts_unix_ms, digest, body),
            )

    def _overwrite(self, session: int, event: Event) -> None:
        # As `_erase` does: the row keeps its length, and decoding ignores the zeros at its end.
        query = "SELECT key, length(body) FROM records WHERE session = ? AND event = ? AND erased = 0"
        ((key, length),) = self._writer.execute(query, (session, event.event_id)).fetchall()
        body = postcard.encode(EventBody, event.body)
        assert len(body) <= length, "what is left of a batch is longer than the batch"
        body += bytes(length - len(body))
        digest = digest_of(session, event.event_id, event.epoch, event.ts_unix_ms, body)
        self._writer.execute("UPDATE records SET digest = ?, body = ? WHERE key = ?", (digest, body, key))

    def _erase(self, session: int) -> None:
        # Zeros of the same length go where the body was: SQLite overwrites a row that keeps its size in place.
        # The checksum goes too: it would confirm a guess at a short text.
        self._writer.execute(
            "UPDATE records SET digest = zeroblob(length(digest)), body = zeroblob(length(body)), erased = 1"
            " WHERE session = ? AND erased = 0",
            (session,),
        )
        self._erase_snapshots(session)

    def _erase_snapshots(self, session: int) -> None:
        self._writer.execute(
            "UPDATE snapshots SET digest = zeroblob(length(digest)), state = zeroblob(length(state)), erased = 1"
            " WHERE session = ? AND erased = 0",
            (session,),
        )

    # --- reading --------------------------------------------------------------------------------------------------

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
        """By session, when its last record was written, in Unix milliseconds; only sessions that inherit nothing."""
        query = "SELECT ts FROM records WHERE session = ? AND event = ? AND erased = 0"
        rows = ((head.id, self._read(query, (head.id, head.events - 1))) for head in heads)
        return {session: found[0][0] for session, found in rows if found}

    def read(self, segments: Iterable[Segment]) -> Iterator[Event]:
        """The records of `segments`, in order, a page at a time. Raises DamagedRecord at the first that is."""
        for segment in segments:
            yield from self._expanded(self._reader, segment)

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
                    for event in self._page_through(self._reader, Segment(head.id, at, head.events)):
                        at = event.event_id + 1
                except DamagedRecord as damaged:
                    yield damaged
                    at = damaged.event + 1

    def _expanded(self, connection: sqlite3.Connection, segment: Segment) -> Iterator[Event]:
        """As `_page_through`, each `Rerooted` with its prefix."""
        for event in self._page_through(connection, segment):
            if isinstance(event.body, records.Rerooted) and not event.body.prefix:
                body = self._with_prefix(connection, segment.session, event.event_id, event.body)
                yield Event(event.event_id, event.epoch, event.ts_unix_ms, body)
            else:
                yield event

    def _page_through(self, connection: sqlite3.Connection, segment: Segment) -> Iterator[Event]:
        at = segment.start
        while at < segment.stop:
            rows = self._page(connection, segment, at)
            for row in rows:
                yield event_in(segment.session, at, row)
                at += 1
            if not rows:
                raise DamagedRecord(segment.session, at)

    def _page(self, connection: sqlite3.Connection, segment: Segment, at: int) -> list[tuple[Any, ...]]:
        """The next rows, one at least where there is one; DamagedRecord where SQLite cannot read the first."""
        for most in (PAGE, 1):
            try:
                return self._read(_SELECT_RECORDS, (segment.session, at, segment.stop, most), connection)
            except _CorruptPage:
                continue
        raise DamagedRecord(segment.session, at)

    def _with_prefix(
        self, connection: sqlite3.Connection, session: int, event_id: int, body: records.Rerooted
    ) -> records.Rerooted:
        """`body` with what the session took over. Within it, an earlier `Rerooted` stays bare: its own prefix is the
        front of the same list."""
        ((inherited,),) = self._read("SELECT fork_at FROM heads WHERE id = ?", (session,), connection)
        if event_id < inherited:
            return body
        prefix = tuple(
            (event.event_id, stored(event.body))
            for event in self._page_through(connection, Segment(session, 0, inherited))
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

    def _read(
        self, query: str, values: tuple[int | str | bytes, ...], connection: sqlite3.Connection | None = None
    ) -> list[tuple[Any, ...]]:
        try:
            return (connection or self._reader).execute(query, values).fetchall()
        except (sqlite3.Error, UnicodeDecodeError) as fault:  # the latter where SQLite quotes a damaged schema
            corrupt = getattr(fault, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_CORRUPT
            raise (_CorruptPage if corrupt else StoreError)(str(fault)) from fault


class _CorruptPage(StoreError):
    """SQLite itself found damage on the way to a row."""


class _Transaction:
    """BEGIN IMMEDIATE to COMMIT; any failure rolls back and becomes StoreError."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as fault:
            raise StoreError(str(fault)) from fault

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, _: object) -> None:
        try:
            if fault is None:
                self._connection.execute("COMMIT")
                return
        except sqlite3.Error as refused:
            fault = refused
        try:
            if self._connection.in_transaction:  # SQLite has rolled back by itself after some failures
                self._connection.execute("ROLLBACK")
        except sqlite3.Error as refused:
            fault = refused
        if isinstance(fault, sqlite3.Error):
            raise StoreError(str(fault)) from fault
