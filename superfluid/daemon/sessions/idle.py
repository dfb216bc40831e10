"""A session's turn for what is refused while it generates (spec: wire-facts, 8.9)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from superfluid.daemon.book import Book
from superfluid.daemon.engine.room import EngineRoom
from superfluid.protocol.refusals import SessionBusy
from superfluid.sessions.state import SessionState


@asynccontextmanager
async def idle(book: Book, room: EngineRoom, session: int) -> AsyncIterator[SessionState]:
    """As `Book.writing`, of a session that does not generate. Raises SessionBusy."""
    async with book.writing(session) as state:
        if room.in_flight.busy(session):
            raise SessionBusy(session)
        yield state
