"""Stateless requests that are logged, and how long they stay (decision 38).

One that is kept is a session like any other, with an id from 2^52 up, archived from its first record on; lists leave
it out. It is purged some time after its last record. Who takes it out of the archive, names it, or forks it, has a
session that stays.
"""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from heapq import heappop, heappush

import trio

from superfluid.daemon.book import Book
from superfluid.daemon.engine.room import EngineRoom
from superfluid.daemon.sessions.keeping import Keeping
from superfluid.protocol.records import Event
from superfluid.protocol.refusals import ErasurePending, Refusal, SessionDamaged, StoreFailed
from superfluid.sessions.heads import Head
from superfluid.sessions.state import SessionState
from superfluid.store.log import SessionLog

_LOG = logging.getLogger("superfluid.kept_requests")

FACT = "keep_requests"
"""Under this the log holds how long requests are kept: the seconds, as text."""

BATCH = 64
"""Most requests that one transaction purges."""

PAUSE = 1.0
"""Seconds between two purges, so that many requests go together."""

LOOK = 60.0
"""Seconds after which one looks again, whatever was expected: the wall clock may have been set meanwhile."""

RETRY = 60.0
"""Seconds before what could not be purged is tried again."""


class KeptRequests:
    """Keeps requests for `seconds` past their end: 0 keeps none, infinity keeps them for ever.

    With 0, those that are there already go by what was said when requests were last kept.
    """

    def __init__(self, book: Book, room: EngineRoom, keeping: Keeping, seconds: float) -> None:
        self._book = book
        self._room = room
        self._keeping = keeping
        self._seconds = seconds
        self._stay = seconds
        """how long requests stay, new ones or not"""
        self._due: list[tuple[float, int]] = []
        """a heap: when to look at which request, in Unix milliseconds"""
        self._news = trio.Event()

    @property
    def on(self) -> bool:
        """Whether new requests are kept."""
        return self._seconds > 0

    @asynccontextmanager
    async def logged(self, state: SessionState, events: Sequence[Event]) -> AsyncIterator[None]:
        """A request begins with `events`, which `state` has applied, and which are durable inside.

        Nobody else has a generation on the session meanwhile. Raises QueueFull and StoreFailed: nothing is kept then.
        """
        with self._room.in_flight.claim(state.id):
            # With its place kept: what is refused for a full queue leaves nothing.
            with self._room.schedule.reserve():
                await self._book.commit_new(state, tuple(events))
            try:
                yield
            finally:
                self._look_at(state.id, self._book.now_ms() + self._stay * 1000)

    # --- purging --------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Purge what has been kept for long enough, for ever, also what an earlier daemon has left."""
        await self._settle()
        for head in self._book.heads.all_live():
            if head.is_request:
                self._look_at(head.id, 0)
        while True:
            await self._purge_due(self._book.now_ms())
            self._news = trio.Event()
            with trio.move_on_after(self._pause()):
                await self._news.wait()

    async def _settle(self) -> None:
        """Note how long requests stay, or find out how long they were to."""
        while True:
            try:
                noted = await self._book.log.ask(lambda log: log.fact(FACT))
                if not self.on:
                    self._stay = float(noted) if noted is not None else math.inf
                elif noted != (text := repr(self._seconds).encode()):
                    await self._book.log.tell(lambda log: log.set_fact(FACT, text))
                return
            except StoreFailed as fault:
                _LOG.warning("no request is purged for now: %s", fault.code)
            await trio.sleep(RETRY)

    def _look_at(self, session: int, due: float) -> None:
        if not math.isinf(self._stay):
            heappush(self._due, (due, session))
            if self._due[0] == (due, session):
                self._news.set()

    def _pause(self) -> float:
        """Seconds until there may be something to purge."""
        if not self._due:
            return math.inf
        return max(PAUSE, min(LOOK, (self._due[0][0] - self._book.now_ms()) / 1000))

    async def _purge_due(self, now: int) -> None:
        """Purge what is due at `now`."""
        while batch := self._take(now):
            try:
                ends = await self._book.log.ask(partial(_ends, batch))
            except StoreFailed as fault:
                self._put_off(batch, fault)
                continue
            over = []
            for head in batch:
                if head.id not in ends:
                    if self._is_going(head.id):
                        self._look_at(head.id, now + PAUSE * 1000)  # somebody purges it, which may yet fail
                    else:
                        self._put_off([head], SessionDamaged(head.id, head.events - 1))
                    continue
                due = ends[head.id] + self._stay * 1000
                if due > now:
                    self._look_at(head.id, due)
                elif self._book.heads.any(head.id) is not head or self._room.in_flight.busy(head.id):
                    self._look_at(head.id, now + max(PAUSE, self._stay) * 1000)  # somebody goes on with it
                else:
                    over.append(head)
            if over:
                await self._purge(over)

    def _is_going(self, session: int) -> bool:
        """Whether it is being purged, or was while its age was looked up."""
        return session in self._book.fenced or self._book.heads.any(session) is None

    def _take(self, now: int) -> list[Head]:
        """The next requests to look at, none where none is due."""
        batch: list[Head] = []
        while self._due and self._due[0][0] <= now and len(batch) < BATCH:
            _, session = heappop(self._due)
            head = self._book.heads.any(session)
            if head is None or head.purged:
                continue
            if head.is_request:
                batch.append(head)
            else:  # for now: it may be archived again
                self._look_at(session, now + max(LOOK, self._stay) * 1000)
        return batch

    async def _purge(self, heads: Sequence[Head]) -> None:
        """Purge requests together; each by itself where that fails."""
        sessions = tuple(head.id for head in heads)
        try:
            if not await self._keeping.expire(heads):
                self._put_off(heads, None)
        except ErasurePending as refusal:
            _LOG.warning("%s requests are purged: %s", len(sessions), refusal.code)
        except Exception as fault:
            if not isinstance(fault, Refusal):
                _LOG.exception("a purge failed")
            if len(heads) == 1:
                self._put_off(heads, fault)
            else:
                for head in heads:
                    await self._purge((head,))

    def _put_off(self, heads: Sequence[Head], fault: Exception | None) -> None:
        for head in heads:
            self._look_at(head.id, self._book.now_ms() + RETRY * 1000)
        if fault is not None:
            _LOG.warning("%s requests are not purged yet: %s", len(heads), getattr(fault, "code", "internal"))


def _ends(heads: Sequence[Head], log: SessionLog) -> dict[int, int]:
    return log.last_ms(heads)
