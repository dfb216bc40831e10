"""Use cases that put something on a session's input: Append, AppendMessage, AppendSystem."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from superfluid.daemon.book import Book
from superfluid.daemon.engine_room import EngineRoom
from superfluid.daemon.served import ServedModel
from superfluid.protocol.codes import Role
from superfluid.protocol.records import Event, Span
from superfluid.protocol.refusals import NotInThisBuild, SessionBusy
from superfluid.sessions import decide
from superfluid.sessions.state import SessionState


class Appending:
    """Refused while the session generates (wire-facts 8.9)."""

    def __init__(self, book: Book, room: EngineRoom, model: ServedModel) -> None:
        self._book = book
        self._room = room
        self._model = model

    async def append(self, session: int, text: str | None, span: Span) -> Event:
        """Raw tokens, or a text's tokens as they stand (8.3)."""
        async with self._idle(session) as state:
            rendered = await self._model.tokens(text) if text is not None and not span else ()
            return await self._book.commit_one(state, decide.append(text, span, rendered))

    async def message(self, session: int, role: int, text: str) -> Event:
        """A message through the model's chat template (8.4)."""
        decide.check_role(role)
        async with self._idle(session) as state:
            span = await self._model.message(state, role, text)
            return await self._book.commit_one(state, decide.message(role, text, span))

    async def system(self, session: int, text: str | None, tools: tuple[str, ...]) -> Event:
        """The turn that opens a session (8.5)."""
        decide.check_system_request(text, tools)
        if tools:
            raise NotInThisBuild("tools in AppendSystem")
        async with self._idle(session) as state:
            decide.check_system(state)
            span = await self._model.message(state, Role.SYSTEM, text or "")
            return await self._book.commit_one(state, decide.message(Role.SYSTEM, text or "", span))

    @asynccontextmanager
    async def _idle(self, session: int) -> AsyncIterator[SessionState]:
        async with self._book.writing(session) as state:
            if self._room.in_flight.busy(session):
                raise SessionBusy(session)
            yield state
