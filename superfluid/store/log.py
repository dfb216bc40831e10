"""The session log: records appended in transactions, read back in pages, erased when a session is purged.

"Committed" means: SQLite's transaction returned with `synchronous = FULL` in WAL mode. It survives the process being
killed at any instruction, and the machine losing power as far as the disk keeps its word (design decision 6).

Synchronous. One thread at a time may write, one (another) may read; the daemon keeps one thread for each.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from superfluid.protocol import postcard, records
from superfluid.protocol.records import Event, EventBody
from superfluid.sessions.heads import Head, Segment
from superfluid.store import head_rows, snapshot_rows
from superfluid.store.errors import StillThere, StoreError
from superfluid.store.reading import LogReader, is_corrupt
from superfluid.store.rows import digest_of, stored
from superfluid.store.schema import ERASING, connect, erase_copies


@dataclass(frozen=True, slots=True)
class Change:
    """What one transaction does to one session: its new records, in order, and its head after them."""

    head: Head
    events: tuple[Event, ...]
    snapshot: bytes | None = None
    """`snapshot.dump` of the state after `events`, where one is due"""
    bodies: tuple[bytes, ...] | None = None
    """`events` as they are stored, where that was made out before: while they are written, nobody else can write"""

    def encoded(self) -> Change:
        """With its `bodies`."""
        return replace(self, bodies=tuple(map(_encoded, self.events)))


@dataclass(frozen=True, slots=True)
class Reroot:
    """A child that outlives its parent: it takes `inherited` over as records of its own, then `change` applies."""

    change: Change
    inherited: tuple[Segment, ...]


class SessionLog(LogReader):
    """One database, read over one connection and written over another.

    Every method may raise StoreError; after it, the database is as before the call.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer = connect(path, writer=True)
        try:
            super().__init__(connect(path, writer=False))
        except StoreError:
            self._writer.close()
            raise
        self._written = LogReader(self._writer)
        """what is there for whoever writes: a transaction under way sees its own records"""
        try:
            # A purge that was killed before its own truncation left what it erased in the write-ahead log.
            self.truncate()
        except StoreError:
            pass  # a full disk, or somebody who reads: neither keeps the log from being read

    def close(self) -> None:
        super().close()
        self._writer.close()

    def set_fact(self, name: str, value: bytes) -> None:
        """Note something about the whole log, instead of what was noted before."""
        with _Transaction(self._writer):
            self._writer.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, value))

    def drop_facts(self, names: Iterable[str]) -> None:
        """Note nothing under these names any more."""
        with _Transaction(self._writer):
            self._writer.executemany("DELETE FROM facts WHERE name = ?", ((name,) for name in names))

    def commit(self, changes: Sequence[Change]) -> None:
        """All of `changes` in one transaction, durable when this returns. Snapshots are left out where a damaged page
        is in their way: their sessions take longer to fold then, that is all."""
        try:
            self._commit(changes)
        except StoreError as fault:
            # From the first damage that it finds on, SQLite writes nothing more in a transaction.
            if not is_corrupt(fault.__cause__) or all(change.snapshot is None for change in changes):
                raise
            self._commit([replace(change, snapshot=None) for change in changes])

    def _commit(self, changes: Sequence[Change]) -> None:
        with _Transaction(self._writer):
            for change in changes:
                self._write(change)

    def purge(self, purged: Iterable[Change], rerooted: Iterable[Reroot]) -> None:
        """One transaction that erases the sessions in `purged` and cuts their living children loose.

        Returns once the texts and tokens are in no file of the database: overwritten in place, the write-ahead log
        truncated, copies of older versions removed. Raises StillThere where only one of the latter failed; the purge
        is durable then.
        """
        with _Transaction(self._writer):
            for reroot in rerooted:
                for segment in reroot.inherited:
                    self._copy(segment, reroot.change.head.id)
                self._write(reroot.change)
            for change in purged:
                self._erase(change.head.id)
                self._write(change)
        try:
            self.erase_rest()
        except StoreError as fault:
            raise StillThere(str(fault)) from fault

    def erase_rest(self) -> None:
        """Leave nothing that was purged in copies of older versions or in the write-ahead log."""
        try:
            erase_copies(self._path)
        except OSError as fault:
            raise StoreError(f"{fault.filename or self._path.parent}: {fault.strerror}") from fault
        self.truncate()

    def erase_data(self, session: int, erased: Iterable[Event]) -> None:
        """One transaction that puts what is left of a session's batches in their place. It is durable when this
        returns; `erase_rest` then leaves nothing of what they were."""
        with _Transaction(self._writer):
            for event in erased:
                self._overwrite(session, event)
            self._writer.execute(f"PRAGMA user_version = {ERASING}")

    def renew_snapshot(self, session: int, events: int, state: bytes) -> None:
        """Likewise, have `state`, of so many events, take the place of what the session's snapshots say."""
        with _Transaction(self._writer):
            snapshot_rows.put(self._writer, session, events, state)

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
        session = change.head.id
        bodies = map(_encoded, change.events) if change.bodies is None else change.bodies
        for event, body in zip(change.events, bodies, strict=True):
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
            snapshot_rows.put(self._writer, session, change.head.events, change.snapshot)

    def _put_head(self, head: Head, title_key: int | None, name_key: int | None) -> None:
        keys = self._writer.execute(head_rows.SELECT_KEYS, (head.id,)).fetchone() or (None, None)
        title_key = (title_key or keys[0]) if head.title is not None else None
        name_key = (name_key or keys[1]) if head.feed.name is not None else None
        self._writer.execute(head_rows.INSERT, head_rows.to_row(head, title_key, name_key))

    def _copy(self, segment: Segment, child: int) -> None:
        for event in self._written.read((segment,), bare=True):
            body = _encoded(event)
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
        snapshot_rows.erase(self._writer, session)


def _encoded(event: Event) -> bytes:
    """What a row's body says."""
    return postcard.encode(EventBody, stored(event.body))


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
