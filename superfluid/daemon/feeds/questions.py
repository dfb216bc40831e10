"""Questions put on the input of a session that is not logged: what is asked over a feed leaves no trace in it."""

from __future__ import annotations

from superfluid.daemon.book import Book
from superfluid.daemon.served import ServedModel
from superfluid.protocol.codes import Role
from superfluid.protocol.records import GenerationPrompt, Message
from superfluid.sessions.state import SessionState

FRAME = 32
"""Tokens that a template puts around a question, at the most that was seen."""


async def room_for_flashes(model: ServedModel, state: SessionState) -> int:
    """What the longest of the session's flash queries takes with its answer (decision 21)."""
    flashes = state.feed.flashes.values()
    return max([FRAME + len(await model.plain(flash.query)) + flash.max_tokens for flash in flashes], default=0)


async def put_question(book: Book, model: ServedModel, state: SessionState, text: str) -> None:
    """A question and the assistant header. `state` is a passing session's. Raises ProtocolRefusal."""
    span = await model.question(state, text)
    book.pass_by(state, Message(Role.USER, text, span))
    put_opener(book, model, state)


def put_opener(book: Book, model: ServedModel, state: SessionState) -> None:
    """The assistant header alone: after data, the end of their turn comes first."""
    if opener := model.opener(state):
        book.pass_by(state, GenerationPrompt(opener))
