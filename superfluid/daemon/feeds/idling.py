"""Sessions with a name that nobody uses: their KV makes room for others (decision 27). They are never deleted.

The next use brings the KV back from disk, or computes it again.
"""

from __future__ import annotations

import trio

from superfluid.daemon.book import Book
from superfluid.daemon.engine.room import EngineRoom
from superfluid.daemon.feeds.feeds import Feeds
from superfluid.protocol.ticks import ON_DISK

LOOKS = 10
"""How often one looks within the time that makes a session idle."""

WRITING = 2.0
"""Seconds that writing what is idle to disk may take, in which the worker does nothing else."""


class Idling:
    """`seconds` without use make a session idle; 0 is never."""

    def __init__(self, book: Book, room: EngineRoom, feeds: Feeds, seconds: float) -> None:
        self._book = book
        self._room = room
        self._feeds = feeds
        self._seconds = seconds

    async def run(self) -> None:
        """Look for idle sessions, for ever."""
        while self._seconds:
            await trio.sleep(max(self._seconds / LOOKS, 0.1))
            self.look()

    def look(self) -> None:
        """Have the KV of what is idle now leave memory; pins keep theirs."""
        now = self._book.now_ms()
        idle = [
            session
            for session in self._feeds.unused_since(now - int(self._seconds * 1000))
            if self._in_memory(session) and self._book.live(session).pin_deadline_ms <= now
        ]
        if idle:
            self._room.orders.retire(idle, WRITING)

    def _in_memory(self, session: int) -> bool:
        place = self._room.kv.get(session)
        return place is not None and place.tier != ON_DISK
