"""Use cases that make a session: Create, Fork, Rebase, Trim (spec: wire-facts, 8.1 and 8.2)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import trio

from superfluid.daemon.book import Book
from superfluid.daemon.served import ServedModel
from superfluid.protocol.records import Drop, Event, EventBody, Forked, GenParams, Rebased, RebaseEdit, Span
from superfluid.protocol.refusals import DataErased, ProtocolRefusal
from superfluid.sessions import decide
from superfluid.sessions.rebase import rebase
from superfluid.sessions.state import SessionState

_Child = tuple[SessionState, tuple[Event, ...]]
"""A session to be, and its own records, which are applied to it."""


class Branching:
    """None of these touches the parent, so all are allowed while it generates."""

    def __init__(self, book: Book, model: ServedModel) -> None:
        self._book = book
        self._model = model

    async def create(self, parent: int | None, params: GenParams) -> int:
        if parent is not None:
            self._book.live(parent)
        body = decide.create(parent, params)
        child = SessionState(self._book.heads.next_id())
        event = self._first(child, body)
        if parent is None:
            await self._book.commit_new(child, (event,))
        else:
            async with self._book.writing(parent):
                await self._book.commit_new(child, (event,))
        return child.id

    async def fork(self, session: int, at_event: int, params: GenParams | None) -> int:
        """A session that holds the events before `at_event`."""
        return await self._made(session, lambda parent: self._fork(parent, decide.fork(parent, at_event, params)))

    async def trim(self, session: int, to_event: int) -> int:
        def trimmed(parent: SessionState) -> Awaitable[_Child]:
            edits = decide.trim(parent, to_event)
            if not edits:
                return self._fork(parent, decide.fork(parent, to_event, None))
            return self._rebase(parent, edits, parent.params)

        return await self._made(session, trimmed)

    async def rebase(self, session: int, edits: tuple[RebaseEdit, ...], params: GenParams | None) -> int:
        if not edits:
            decide.check_edits(SessionState(session), edits)

        def rebased(parent: SessionState) -> Awaitable[_Child]:
            decide.check_edits(parent, edits)
            return self._rebase(parent, edits, decide.check_params(params) if params else parent.params)

        return await self._made(session, rebased)

    async def _made(self, session: int, make: Callable[[SessionState], Awaitable[_Child]]) -> int:
        """The id of a child that `make` has made of the session as it is. Raises DataErased."""
        while True:
            erasures = self._book.erasures[session]
            child, events = await make(await self._book.now(session))
            change = await self._book.made(child, events)
            async with self._book.writing(session):  # it may have been purged while this read and rendered
                if self._book.erasures[session] != erasures:
                    continue  # `child` may hold what the log does not have any more
                if not child.feed.is_whole(child.tokens):
                    raise DataErased(session, child.fork_at)
                await self._book.commit_made(child, change)
                return child.id

    async def _fork(self, parent: SessionState, body: Forked) -> _Child:
        child = await self._child(parent, body.fork_at)
        return child, (self._first(child, body),)

    async def _rebase(self, parent: SessionState, edits: tuple[RebaseEdit, ...], params: GenParams) -> _Child:
        start = edits[0].from_
        child = await self._child(parent, start)
        first = self._first(child, Rebased(parent.id, start, params, edits))
        last = edits[-1]
        # Of a feed, what is left out at the end may be far longer than what stays.
        stop = last.from_ if isinstance(last, Drop) and last.to == parent.events else parent.events
        later = [event async for event in self._book.backlog(parent.id, start, stop)]
        now = self._book.now_ms()
        # Rendering and folding a long history takes a while: in a thread, on a state that nobody else has.
        rest = await trio.to_thread.run_sync(rebase, child, later, edits, now, _Rendering(self._model))
        return child, (first, *rest)

    async def _child(self, parent: SessionState, events: int) -> SessionState:
        """The state of a new session that inherits `events` events; of the parent's class as it is now."""
        child = await self._book.folded(parent, events)
        child.id = self._book.heads.next_id()
        child.qos, child.batch_invariant = parent.qos, parent.batch_invariant
        return child

    def _first(self, child: SessionState, body: EventBody) -> Event:
        event = Event(child.events, 1, self._book.now_ms(), body)
        child.apply(event)
        return event


@dataclass(frozen=True, slots=True)
class _Rendering:
    """As the model renders; where it has no template, a replacing text stands as it is."""

    model: ServedModel

    def message_now(self, before: SessionState, role: int, text: str) -> Span:
        if self.model.dialect is not None:
            return self.model.message_now(before, role, text)
        span = self.model.tokens_now(text)
        if not span:
            raise ProtocolRefusal("rebase: the replacing text has no tokens")
        return span

    def opener(self, before: SessionState) -> Span:
        return self.model.opener(before)

    def data_frame(self, before: SessionState) -> tuple[Span, Span]:
        return self.model.data_frame(before)
