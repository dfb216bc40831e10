"""The database of a session log: its tables, its settings, its version (design decisions 4, 5, 39, 40).

`records` grows at the end only: one rising key, so that no page ever splits in the middle and leaves a copy of a row
behind. For the same reason a purge overwrites bodies in place with zeros of the same length and deletes nothing, and
snapshots are written over in place (see `snapshot_rows`).
Texts and tokens live in `records.body` and `snapshots.state` alone; a head points at the records that hold its title
and its name. A database of an older build is migrated in one transaction, after a copy of it was set aside; the first
purge removes the copy.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from superfluid.store.errors import StoreError

VERSION = 2

ERASING = 3
"""The version of a log from which data was erased while its session lives: as 2, but older builds have no record of
that. A log gets it with the first erasure, so that those who keep everything can go back."""

_FEED_COLUMNS = (
    "name_key INTEGER",  # the record that holds the name
    "born_ms INTEGER NOT NULL DEFAULT 0",
    "window INTEGER",
    "pre_decode INTEGER NOT NULL DEFAULT 0",
    "data_version INTEGER NOT NULL DEFAULT 0",
    "evicted INTEGER NOT NULL DEFAULT 0",
    "dropped INTEGER NOT NULL DEFAULT 0",
    "taken INTEGER NOT NULL DEFAULT 0",
    "frozen_end INTEGER",
    "flashes INTEGER NOT NULL DEFAULT 0",
    "turns INTEGER NOT NULL DEFAULT 0",
    "ever INTEGER NOT NULL DEFAULT 0",
)
"""What version 2 knows of a session besides."""

_TABLES = """
CREATE TABLE records (
  key     INTEGER PRIMARY KEY AUTOINCREMENT,
  session INTEGER NOT NULL,
  event   INTEGER NOT NULL,
  epoch   INTEGER NOT NULL,
  ts      INTEGER NOT NULL,
  digest  BLOB NOT NULL,     -- 8 bytes over session, event, epoch, ts and body
  erased  INTEGER NOT NULL DEFAULT 0,
  body    BLOB NOT NULL      -- postcard of one EventBody
);
CREATE UNIQUE INDEX records_by_event ON records (session, event) WHERE erased = 0;
CREATE TABLE snapshots (
  key     INTEGER PRIMARY KEY AUTOINCREMENT,
  session INTEGER NOT NULL,
  event   INTEGER NOT NULL,  -- events folded in
  digest  BLOB NOT NULL,
  erased  INTEGER NOT NULL DEFAULT 0,
  state   BLOB NOT NULL
);
CREATE INDEX snapshots_by_session ON snapshots (session, event) WHERE erased = 0;
CREATE TABLE heads (
  id              INTEGER PRIMARY KEY,
  parent          INTEGER,
  fork_at         INTEGER NOT NULL,
  own_from        INTEGER NOT NULL,
  events          INTEGER NOT NULL,
  tokens          INTEGER NOT NULL,
  epoch           INTEGER NOT NULL,
  title_key       INTEGER,   -- the record that holds the title
  archived        INTEGER NOT NULL,
  meta_version    INTEGER NOT NULL,
  generation      INTEGER NOT NULL,
  purged          INTEGER NOT NULL,
  open_calls      INTEGER NOT NULL,
  pin_deadline_ms INTEGER NOT NULL,
  born_qos        INTEGER NOT NULL,
  born_invariant  INTEGER NOT NULL
);
CREATE TABLE facts (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
"""
"""Version 1; what came later is added to it, so that a new database and one that was migrated are the same."""

_TO_2 = (
    *(f"ALTER TABLE heads ADD COLUMN {column}" for column in _FEED_COLUMNS),
    "UPDATE heads SET born_ms = coalesce((SELECT ts FROM records WHERE session = heads.id AND event = heads.own_from"
    " AND erased = 0), 0), ever = tokens",
)


def connect(path: Path, *, writer: bool) -> sqlite3.Connection:
    """A connection set up as the log needs it. The caller lets one thread at a time use it.

    Raises StoreError where the file cannot be opened, is no database, or was written by a newer build.
    """
    connection = None
    try:
        if writer:
            # Created with its mode before SQLite sees it, whatever the umask; -wal and -shm inherit the mode.
            # An existing one is not opened here: closing it would drop the locks that SQLite holds on it elsewhere.
            try:
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
            except FileExistsError:
                pass
            os.chmod(path, 0o600)
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=10)
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute("PRAGMA temp_store = MEMORY")  # no temporary files with pieces of records in them
        if not writer:
            connection.execute("PRAGMA query_only = ON")
            connection.text_factory = bytes  # nothing in it is text, but after damage anything may look like it
            return connection
        _refuse_others(connection, path)
        mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode != "wal":
            raise StoreError(f"{path}: this file system has no write-ahead log (journal mode {mode})")
        connection.execute("PRAGMA synchronous = FULL")
        _migrate(connection, path)
        connection.text_factory = bytes
    except (sqlite3.Error, OSError, UnicodeDecodeError) as fault:  # the last where SQLite quotes a damaged schema
        if connection is not None:
            connection.close()
        place = getattr(fault, "filename", None) or path
        raise StoreError(f"{place}: {getattr(fault, 'strerror', None) or fault}") from fault
    except StoreError:
        if connection is not None:
            connection.close()
        raise
    return connection


def _refuse_others(connection: sqlite3.Connection, path: Path) -> None:
    """Raises StoreError for a database that this build cannot go on with, before anything is written to it."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > ERASING:
        raise StoreError(f"{path} was written by a newer build: its version is {version}, this build reads {ERASING}")
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if version < 0 or (version == 0) != (tables == 0):
        raise StoreError(f"{path} is a database, but no session log")


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version in (VERSION, ERASING):
        return
    if version:
        _set_aside(connection, copy_of(path, version))
    connection.execute("BEGIN IMMEDIATE")
    try:
        if not version:
            for statement in _TABLES.split(";\n"):
                connection.execute(statement)
            connection.execute("INSERT INTO facts VALUES ('store_id', ?)", (os.urandom(16),))
        for statement in _TO_2:
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")
    except sqlite3.Error:
        connection.execute("ROLLBACK")
        raise


def copy_of(path: Path, version: int) -> Path:
    """Where the database at `path` as it was in `version` is set aside."""
    return path.with_name(f"{path.name}.version-{version}")


def erase_copies(path: Path) -> None:
    """Remove what was set aside of the database at `path`, for good: it holds what a purge erases. Raises OSError."""
    copies = [copy_of(path, version) for version in range(1, VERSION)]
    there = [copy for copy in (*copies, *map(_unfinished, copies)) if copy.exists()]
    for copy in there:
        copy.unlink(missing_ok=True)
    if there:
        _sync(path.parent)


def _set_aside(connection: sqlite3.Connection, copy: Path) -> None:
    """A whole copy of the database, on the disk when this returns; one that is there stays as it is."""
    if copy.exists():
        return
    unfinished = _unfinished(copy)
    unfinished.unlink(missing_ok=True)
    os.close(os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    with closing(sqlite3.connect(unfinished, isolation_level=None)) as target:
        connection.backup(target)
        target.execute("PRAGMA journal_mode = DELETE")  # one file, that nothing lies beside
    _sync(unfinished)
    os.replace(unfinished, copy)
    _sync(copy.parent)


def _unfinished(copy: Path) -> Path:
    return copy.with_name(f"{copy.name}.unfinished")


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
