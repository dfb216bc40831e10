"""Use cases that put something on a session's input: Append, AppendMessage, AppendSystem, AppendBlock,
AppendToolResult (spec: wire-facts, 8.3 to 8.6 and 8.16)."""

from __future__ import annotations

from superfluid.daemon.book import Book
from superfluid.daemon.engine.room import EngineRoom
from superfluid.daemon.served import ServedModel
from superfluid.daemon.sessions.idle import idle
from superfluid.model.dialect import required
from superfluid.model.tools import parse_tools
from superfluid.protocol.codes import Role
from superfluid.protocol.records import Event, Span
from superfluid.sessions import blocks, decide, tooling
from superfluid.sessions.tooling import TooLate


class Appending:
    """Refused while the session generates (wire-facts 8.9)."""

    def __init__(self, book: Book, room: EngineRoom, model: ServedModel) -> None:
        self._book = book
        self._room = room
        self._model = model

    async def append(self, session: int, text: str | None, span: Span) -> Event:
        """Raw tokens, or a text's tokens as they stand (8.3)."""
        rendered: Span = ()
        if text is not None and not span:
            self._book.live(session)
            rendered = await self._model.tokens(text)  # may take seconds, in which the session is left to others
        async with idle(self._book, self._room, session) as state:
            return await self._book.commit_one(state, decide.append(text, span, rendered))

    async def message(self, session: int, role: int, text: str) -> Event:
        """A message through the model's chat template (8.4)."""
        decide.check_role(role)
        async with idle(self._book, self._room, session) as state:
            span = await self._model.message(state, role, text)
            return await self._book.commit_one(state, decide.message(role, text, span))

    async def system(self, session: int, text: str | None, tools: tuple[str, ...]) -> Event:
        """The turn that opens a session, and declares the tools that the model may call (8.5)."""
        decide.check_system_request(text, tools)
        declared = parse_tools(tools)
        async with idle(self._book, self._room, session) as state:
            required(self._model.dialect)
            decide.check_system(state)
            span = await self._model.declaration(state, text or "", declared, sum(map(len, tools)))
            return await self._book.commit_one(state, decide.message(Role.SYSTEM, text or "", span))

    async def block(self, session: int, role: int, kind: int, payload: str) -> Event:
        """A structured block: its projection as a message, or nothing where that is empty (8.6)."""
        blocks.check(role, kind)
        async with idle(self._book, self._room, session) as state:
            text = blocks.project(kind, payload)
            span = await self._model.message(state, role, text) if text else ()
            return await self._book.commit_one(state, blocks.block(role, kind, payload, span))

    async def tool_result(self, session: int, call_id: int, content: str) -> Event:
        """What a tool call came to (8.16). One that comes too late is noted in the log, and refused."""
        async with idle(self._book, self._room, session) as state:
            call = tooling.judge_result(state, call_id, content, self._book.now_ms())
            if isinstance(call, TooLate):
                await self._book.commit_one(state, call.body)
                raise call.refusal
            span = await self._model.tool_result(state, call.name, content, call_id)
            return await self._book.commit_one(state, tooling.result(call_id, content, span))
