"""A look over a session log that changes nothing: not the database, nor what a daemon beside it does."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from superfluid.store.errors import DamagedRecord, StoreError
from superfluid.store.reading import LogReader
from superfluid.store.schema import ERASING, VERSION

MOST = 10_000
"""Damaged records named for one log: a number of events that has itself gone wrong must not go on for ever."""


def damaged_records(path: Path) -> tuple[DamagedRecord, ...]:
    """The damaged records of the log at `path`, which a daemon may be serving; the first MOST of them.

    Raises StoreError where it is no session log of this build, or cannot be read at all.
    """
    while True:
        before = _fingerprint(path)
        try:
            found = tuple(islice(_scan(path, alone=before is not None), MOST))
        except StoreError:
            if before is None or before == _fingerprint(path):
                raise
            continue
        # A log that somebody began to write to while it was read as a file at rest says nothing; read it again.
        if before is None or before == _fingerprint(path):
            return found


def _fingerprint(path: Path) -> tuple[int, ...] | None:
    """What changes with the file; None where it has a write-ahead log, which SQLite then reads in concert with it."""
    if Path(f"{path}-wal").exists():
        return None
    try:
        now = os.stat(path)
    except OSError as fault:
        raise StoreError(f"{path}: {fault.strerror}") from fault
    return now.st_ino, now.st_size, now.st_mtime_ns


def _scan(path: Path, *, alone: bool) -> Iterator[DamagedRecord]:
    log = _open(path, alone=alone)
    try:
        yield from log.check()
    except (TypeError, ValueError) as fault:  # heads have no checksum of their own
        raise StoreError(f"{path}: the table of sessions is damaged") from fault
    finally:
        log.close()


def _open(path: Path, *, alone: bool) -> LogReader:
    """`alone`: the file is at rest, so that SQLite needs neither locks nor files of its own beside it."""
    place = f"{path.absolute().as_uri()}?{'immutable=1' if alone else 'mode=ro'}"
    try:
        connection = sqlite3.connect(place, uri=True, isolation_level=None, timeout=10)
    except sqlite3.Error as fault:
        raise StoreError(f"{path}: {fault}") from fault
    try:
        connection.execute("PRAGMA query_only = ON")
        connection.text_factory = bytes
        (version,) = connection.execute("PRAGMA user_version").fetchone()
    except sqlite3.Error as fault:
        connection.close()
        raise StoreError(f"{path}: {fault}") from fault
    if version not in (VERSION, ERASING):
        connection.close()
        raise StoreError(f"{path} is no session log of version {VERSION}, which is what this build reads")
    return LogReader(connection)
