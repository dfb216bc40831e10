"""Questions put on the input of a session that is not logged: what is asked over a feed leaves no trace in it."""

from __future__ import annotations

from superfluid.daemon.book import Book
from superfluid.daemon.served import ServedModel
from superfluid.protocol.codes import Role
from superfluid.protocol.records import GenerationPrompt, Message
from superfluid.sessions.state import SessionState


async def put_question(book: Book, model: ServedModel, state: SessionState, text: str) -> None:
    """A question and the assistant header. `state` is a passing session's. Raises ProtocolRefusal."""
    span = await model.question(state, text)
    book.pass_by(state, Message(Role.USER, text, span))
    put_opener(book, model, state)


def put_opener(book: Book, model: ServedModel, state: SessionState) -> None:
    """The assistant header alone: after data, the end of their turn comes first."""
    if opener := model.opener(state):
        book.pass_by(state, GenerationPrompt(opener))
