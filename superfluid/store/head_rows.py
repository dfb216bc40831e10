"""Heads as rows: their columns in order, and the way there and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from superfluid.sessions.heads import FeedHead, Head

COLUMNS = (
    "id, parent, fork_at, own_from, events, tokens, epoch, title_key, archived, meta_version, generation, purged,"
    " open_calls, pin_deadline_ms, born_qos, born_invariant, name_key, born_ms, window, pre_decode, data_version,"
    " evicted, dropped, taken, frozen_end, flashes, turns, ever"
)

SELECT = f"SELECT {COLUMNS} FROM heads"
SELECT_KEYS = "SELECT title_key, name_key FROM heads WHERE id = ?"
INSERT = f"INSERT OR REPLACE INTO heads ({COLUMNS}) VALUES ({', '.join('?' * len(COLUMNS.split(',')))})"


def to_row(head: Head, title_key: int | None, name_key: int | None) -> tuple[Any, ...]:
    """What `INSERT` takes; the keys are of the records that hold title and name."""
    feed = head.feed
    return (
        head.id,
        head.parent,
        head.fork_at,
        head.own_from,
        head.events,
        head.tokens,
        head.epoch,
        title_key,
        head.archived,
        head.meta_version,
        head.generation,
        head.purged,
        head.open_calls,
        _signed(head.pin_deadline_ms),
        head.born_qos,
        head.born_invariant,
        name_key,
        head.born_ms,
        feed.window,
        feed.pre_decode,
        feed.version,
        feed.evicted,
        feed.dropped,
        feed.taken,
        feed.frozen_end,
        feed.flashes,
        feed.turns,
        feed.ever,
    )


def from_row(row: tuple[Any, ...], word: Callable[[int, int], str | None]) -> Head:
    """The head in a row of `SELECT`; `word` gives the title or the name in the record of a session with that key."""
    return Head(
        id=row[0],
        parent=row[1],
        fork_at=row[2],
        own_from=row[3],
        events=row[4],
        tokens=row[5],
        epoch=row[6],
        title=word(row[0], row[7]) if row[7] is not None else None,
        archived=bool(row[8]),
        meta_version=row[9],
        generation=row[10],
        purged=bool(row[11]),
        open_calls=row[12],
        pin_deadline_ms=_unsigned(row[13]),
        born_qos=row[14],
        born_invariant=bool(row[15]),
        born_ms=row[17],
        feed=FeedHead(
            name=word(row[0], row[16]) if row[16] is not None else None,
            window=row[18],
            pre_decode=bool(row[19]),
            version=row[20],
            evicted=row[21],
            dropped=row[22],
            taken=row[23],
            frozen_end=row[24],
            flashes=row[25],
            turns=row[26],
            ever=row[27],
        ),
    )


def _signed(number: int) -> int:
    """An unsigned number of 64 bits as SQLite can hold it."""
    return number - (1 << 64) if number >> 63 else number


def _unsigned(number: int) -> int:
    return number % (1 << 64)
