"""Snapshots as rows: a session has one, which is written over in place as long as the next fits (design decision 4).

A row that keeps its size is overwritten where it lies, so what it held before is in no file; see `schema`. That is
why rows are made longer than they need be at first, and why one that is too short is zeroed and not used again.
"""

from __future__ import annotations

import sqlite3

from superfluid.store.rows import digest_of

SPARE = 4
"""A row so many times as long as what is to be in it, and `LITTLE` bytes, is not used again: a use writes it all."""

LITTLE = 4096


def put(connection: sqlite3.Connection, session: int, events: int, state: bytes) -> None:
    """Let `state`, of so many events, be the session's only snapshot. Zeros come behind it, which `load` ignores."""
    query = "SELECT key, event, length(state) FROM snapshots WHERE session = ? AND erased = 0"
    rows = connection.execute(query, (session,)).fetchall()
    if len(rows) == 1 and type(rows[0][1]) is type(rows[0][2]) is int:  # after damage, they may be anything
        key, before, there = rows[0]
        length = there + _width(before) - _width(events)
        if len(state) <= length <= SPARE * len(state) + LITTLE and _serial(length) == _serial(there):
            state = state.ljust(length, b"\0")
            connection.execute(
                "UPDATE snapshots SET event = ?, digest = ?, state = ? WHERE key = ?",
                (events, digest_of(session, events, 0, 0, state), state, key),
            )
            return
    erase(connection, session)
    state += bytes(len(state) // 2)
    connection.execute(
        "INSERT INTO snapshots (session, event, digest, state) VALUES (?, ?, ?, ?)",
        (session, events, digest_of(session, events, 0, 0, state), state),
    )


def erase(connection: sqlite3.Connection, session: int) -> None:
    """Leave zeros of all its snapshots."""
    connection.execute(
        "UPDATE snapshots SET digest = zeroblob(length(digest)), state = zeroblob(length(state)), erased = 1"
        " WHERE session = ? AND erased = 0",
        (session,),
    )


def _width(number: int) -> int:
    """Bytes that SQLite takes for an integer of its own range in a row."""
    if number in (0, 1):
        return 0
    return next(width for width in (1, 2, 3, 4, 6, 8) if -(1 << (8 * width - 1)) <= number < 1 << (8 * width - 1))


def _serial(length: int) -> int:
    """Bytes that SQLite takes to say how long a blob is."""
    return -(-(2 * length + 12).bit_length() // 7)
