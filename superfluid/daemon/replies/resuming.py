"""The records that make a resent conversation a session's own, tried on a copy before any is written."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from superfluid.daemon.book import Book
from superfluid.daemon.served import ServedModel
from superfluid.protocol.codes import Role
from superfluid.protocol.records import EventBody, Message, Restored, Rewound, ToolExpired
from superfluid.protocol.refusals import ProtocolRefusal
from superfluid.sessions.resending import Resumption, Sent, resume, system_first
from superfluid.sessions.state import SessionState


class Draught:
    """A copy of a session's state, and the records that were put on it so far."""

    def __init__(self, book: Book, model: ServedModel, state: SessionState) -> None:
        self._book = book
        self._model = model
        self.state = state.copy()
        self.bodies: list[EventBody] = []

    def put(self, *bodies: EventBody) -> None:
        self._book.pass_by(self.state, *bodies)
        self.bodies += bodies

    async def say(self, role: int, text: str) -> None:
        """A message; it closes a reply that was cut. Raises ProtocolRefusal with the template's own words."""
        span = await self._model.turn(self.state, role, text)
        if not span:
            raise ProtocolRefusal("the model's chat template renders nothing for this message")
        self.put(Message(role, text, span))
        await trio.lowlevel.checkpoint()

    def rewind(self, messages: int, version: int) -> None:
        """Go back to the end of so many messages. Calls that are open in what leaves can never be answered."""
        self.put(*(ToolExpired(call_id, "rewound") for call_id, _ in self.state.open_calls))
        self.put(Rewound(messages, version))

    @property
    def detached(self) -> int:
        """How many entries a rewind took out."""
        return len(self.state.feed.detached)

    def restore(self) -> None:
        """Put data that a rewind took out on the input again."""
        if self.state.feed.detached:
            head, _ = self._model.data_frame(self.state)
            self.put(Restored(head))

    async def resume(self, sent: Sequence[Sent]) -> None:
        """Whatever makes `sent` the conversation. Raises OverWindow for what is far too long, and ProtocolRefusal.

        Late system messages keep their place, or go to the first where the template refuses them (decision 35).
        """
        self._model.check_length(sum(len(text) for _, text in sent), messages=len(sent))
        if all(role != Role.SYSTEM for role, _ in sent[1:]):
            await self._follow(resume(self.state, sent))
            return
        tried = Draught(self._book, self._model, self.state)
        try:
            await tried._follow(resume(self.state, sent))
        except ProtocolRefusal:
            await self._follow(resume(self.state, system_first(sent)))
        else:
            self.state, self.bodies = tried.state, [*self.bodies, *tried.bodies]

    async def _follow(self, resumption: Resumption) -> None:
        if resumption.rewinds:
            self.rewind(resumption.kept, self.state.feed.version + 1)
            for role, text in resumption.before_data:
                await self.say(role, text)
            self.restore()
        for role, text in resumption.after_data:
            await self.say(role, text)
