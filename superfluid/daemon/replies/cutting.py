"""A reply that a stop string ended: what was drawn from there on leaves the session's stream; the log keeps it.

Where that fails, it stays in the stream until the next turn, which finds another reply than was sent.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import trio

from superfluid.daemon.book import Book
from superfluid.daemon.replies.resuming import Draught
from superfluid.daemon.served import ServedModel
from superfluid.daemon.sessions.generating import LAST_TICK
from superfluid.protocol.codes import Channel, Finish, Role
from superfluid.protocol.records import Appended, Generated
from superfluid.protocol.refusals import Refusal
from superfluid.sessions.state import SessionState

_LOG = logging.getLogger("superfluid.cutting")

_ENDED = Generated((), "", Channel.TEXT, Finish.END_OF_TURN)
"""the turn has come to its end"""


class Cutting:
    """Cuts replies, also of callers that are cancelled: it takes `LAST_TICK` seconds at the most."""

    def __init__(self, book: Book, model: ServedModel) -> None:
        self._book = book
        self._model = model

    async def reply(self, session: int, text: str) -> None:
        """Let `text` be all that the session's assistant has said last."""
        await self._cut(session, lambda state: self._replace_reply(state, text))

    async def continuation(self, session: int, prompt: int, text: str) -> None:
        """Let `text` be all that follows the first `prompt` tokens, which are raw."""
        await self._cut(session, lambda state: self._replace_rest(state, prompt, text))

    async def _cut(self, session: int, draught: Callable[[SessionState], Awaitable[Draught | None]]) -> None:
        with trio.move_on_after(LAST_TICK, shield=True):
            try:
                async with self._book.writing(session) as state:
                    if (cut := await draught(state)) is not None:
                        await self._book.commit_one(state, *cut.bodies, _ENDED)
            except Refusal as refusal:
                _LOG.warning("session %s: a stopped reply is not cut: %s", session, refusal.code)

    async def _replace_reply(self, state: SessionState, text: str) -> Draught | None:
        last = len(state.said) - 1
        if last < 0 or state.said[last].role != Role.ASSISTANT or state.said[last].text == text:
            return None
        draught = Draught(self._book, self._model, state)
        draught.rewind(last, state.feed.version)
        answers_data = any(start < state.said[last].start for start, _ in state.feed.entries[-draught.detached :])
        if draught.detached and answers_data:
            draught.restore()
        await draught.say(Role.ASSISTANT, text)
        draught.restore()
        return draught

    async def _replace_rest(self, state: SessionState, prompt: int, text: str) -> Draught:
        draught = Draught(self._book, self._model, state)
        draught.rewind(0, state.feed.version)
        draught.put(Appended(None, tuple(state.tokens[:prompt])))
        if span := await self._model.tokens(text):
            draught.put(Appended(text, span))
        return draught
