"""Use case Pin: sessions whose KV is kept before that of others, each until its deadline (spec: wire-facts, 8.14)."""

from __future__ import annotations

import trio

from superfluid.daemon.book import Book
from superfluid.daemon.engine.room import EngineRoom
from superfluid.sessions import decide

DAY = 86400.0
"""Longest sleep between two looks at the deadlines, in seconds: a clock may be set."""


class Pinning:
    """Pins are records; those that have not run out are armed again at start.

    Where the budget does not hold them all, sessions that were pinned or generated on last come first.
    """

    def __init__(self, book: Book, room: EngineRoom) -> None:
        self._book = book
        self._room = room
        self._changed = trio.Event()
        self._deadlines = {
            head.id: head.pin_deadline_ms for head in book.heads.all_live() if head.pin_deadline_ms > book.now_ms()
        }
        """by session, the one that was touched last at the end"""
        room.touched = self._touch

    async def pin(self, session: int, ttl_ms: int) -> int:
        """The deadline in unix milliseconds, 0 where `ttl_ms` 0 clears it."""
        body = decide.pin(ttl_ms, self._book.now_ms())
        async with self._book.writing(session) as state:
            await self._book.commit_one(state, body)
        self._deadlines.pop(session, None)
        if body.deadline_unix_ms:
            self._deadlines[session] = body.deadline_unix_ms
        self._changed.set()
        return body.deadline_unix_ms

    def _touch(self, session: int) -> None:
        if session in self._deadlines and session != next(reversed(self._deadlines)):
            self._deadlines[session] = self._deadlines.pop(session)
            self._changed.set()

    async def run(self) -> None:
        """Tell the worker what is pinned, whenever that changes: a new pin, a deadline, a new worker."""
        while True:
            self._changed = trio.Event()
            now = self._book.now_ms()
            self._room.metrics.pins_expired += sum(at <= now for at in self._deadlines.values())
            self._deadlines = {
                session: at for session, at in self._deadlines.items() if at > now and self._lives(session)
            }
            self._room.orders.hold(tuple(reversed(self._deadlines)))
            seconds = (min(self._deadlines.values()) - now) / 1000 if self._deadlines else float("inf")
            with trio.move_on_after(min(seconds, DAY)):
                await self._changed.wait()

    def _lives(self, session: int) -> bool:
        head = self._book.heads.any(session)
        return head is not None and not head.purged
