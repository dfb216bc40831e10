"""Use cases around tool calls and permissions that put nothing on the input (spec: wire-facts, 8.16)."""

from __future__ import annotations

from superfluid.daemon.book import Book
from superfluid.daemon.engine.room import EngineRoom
from superfluid.daemon.sessions.idle import idle
from superfluid.protocol.records import Event
from superfluid.protocol.responses import LedgerEntry
from superfluid.sessions import tooling


class Tooling:
    """All but `request_permission` are allowed while the session generates (8.9)."""

    def __init__(self, book: Book, room: EngineRoom) -> None:
        self._book = book
        self._room = room

    async def outcome(self, session: int, call_id: int, code: int, note: str) -> Event:
        """A call failed or was cancelled, instead of a result."""
        async with self._book.writing(session) as state:
            return await self._book.commit_one(state, tooling.outcome(state, call_id, code, note))

    async def request_cancel(self, session: int, call_id: int) -> Event:
        """Ask whoever runs the call to stop; it stays open."""
        async with self._book.writing(session) as state:
            return await self._book.commit_one(state, tooling.cancel(state, call_id))

    async def request_permission(self, session: int, call_id: int, text: str) -> Event:
        """A question that holds up Generate until it is answered; the event's id names it."""
        async with idle(self._book, self._room, session) as state:
            return await self._book.commit_one(state, tooling.ask(state, call_id, text))

    async def respond_permission(self, session: int, request_id: int, granted: bool) -> Event:
        async with self._book.writing(session) as state:
            return await self._book.commit_one(state, tooling.answer(state, request_id, granted))

    async def open_calls(self, session: int) -> tuple[tuple[int, str, str], ...]:
        """Calls that wait for a result: id, name and arguments, ascending."""
        async with self._book.writing(session) as state:
            return tooling.open_calls(state)

    async def ledger(self, session: int) -> tuple[tuple[int, LedgerEntry], ...]:
        """Every call of the session's own timeline and where it stands, ascending."""
        async with self._book.writing(session) as state:
            return tooling.ledger(state)
