"""Ingesting: pushed entries become data on their sessions' inputs, in the background (decisions 18 to 22).

Every session has a queue, and a task of its own while something is in it; what becomes of a batch, see `batching`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import trio

from superfluid.daemon.book import Book
from superfluid.daemon.bus import Bus
from superfluid.daemon.engine.room import EngineRoom
from superfluid.daemon.feeds.batching import Batching
from superfluid.daemon.feeds.intake import Intake
from superfluid.daemon.served import ServedModel
from superfluid.daemon.sessions.generating import Generating
from superfluid.protocol.refusals import (
    Refusal,
    SessionDamaged,
    SessionPurged,
    StoreFailed,
    UnknownSession,
)
from superfluid.sessions.backlog import Backlog
from superfluid.sessions.ingest import Room

_LOG = logging.getLogger("superfluid.ingesting")

PAUSE = 1.0
"""Seconds before a full disk is tried again."""

WAITING = 60.0
"""Seconds after a push in which whoever looks at the session may wait for its KV."""

PATIENCE = 1.0
"""Seconds that foreground requests may hold up a batch. Then it is computed beside questions, and where turns follow
one another without a pause, it is committed between two of them, and the next one computes it."""


class Ingesting:
    """The queues of all sessions, and a task for each that has something in it."""

    def __init__(
        self, book: Book, bus: Bus, room: EngineRoom, generating: Generating, model: ServedModel, limits: Room
    ) -> None:
        self._book = book
        self._kv = room.kv
        self._batching = Batching(book, bus, room, generating, model, limits, self._tell)
        self._intakes: dict[int, Intake] = {}
        self._due: set[int] = set()
        """sessions that may have something to do"""
        self._news = trio.Event()
        self._resting = trio.Condition()
        self.patience = PATIENCE
        self.after_batch: list[Callable[[int], None]] = []
        """are told of a session whose batch is durable"""
        room.in_flight.begun.append(self._give_way)
        bus.ends.append(self._forget)

    # --- what the use cases call ----------------------------------------------------------------------------------

    def backlog(self, session: int) -> Backlog:
        """The session's queue, to look at. Raises UnknownSession, SessionPurged."""
        intake = self._intakes.get(session)
        return intake.backlog if intake is not None else self._empty(session)

    def pending(self, session: int) -> int:
        """How many entries wait."""
        return self._intakes[session].backlog.pending if session in self._intakes else 0

    def has_work(self, session: int) -> bool:
        """Whether something waits, or is being ingested."""
        return session in self._intakes and self._intakes[session].has_work

    def under_way(self, session: int) -> bool:
        """Whether a batch was taken and is not durable yet."""
        return session in self._intakes and self._intakes[session].batch is not None

    def push(self, session: int, entries: Sequence[str]) -> int:
        """Queue `entries`; how many were dropped for it. Raises as `backlog`."""
        if session not in self._intakes:
            self._intakes[session] = Intake(session, self._empty(session))
        intake = self._intakes[session]
        dropped = intake.backlog.push(entries)
        intake.pushed = trio.current_time()
        self._look_at(session)
        return dropped

    def looked_at(self, session: int) -> None:
        """Somebody asks how the session is, perhaps to wait until what was pushed is there with its KV (spec:
        streaming-facts, 2). Have it computed again where a warming or a cut reply has left the session other KV."""
        intake, now = self._intakes.get(session), trio.current_time()
        if intake is None or intake.has_work or now - intake.pushed > WAITING or now - intake.covered < PAUSE:
            return
        if session in self._kv and self._batching.is_behind(session):  # where it has none at all, it was retired
            intake.waited_for, intake.covered = True, now
            self._look_at(session)

    async def stop(self, session: int) -> None:
        """Work on the session no more; return once nothing is under way."""
        intake = self._intakes.get(session)
        if intake is not None and intake.scope is not None:
            intake.scope.cancel()
            await intake.ended.wait()

    def resume(self, session: int) -> None:
        """The session stays after all."""
        self._look_at(session)

    async def rest(self) -> None:
        """Return once nothing is pending anywhere."""
        async with self._resting:
            while any(intake.has_work for intake in self._intakes.values()):
                await self._resting.wait()

    def _look_at(self, session: int) -> None:
        self._due.add(session)
        self._news.set()

    def _empty(self, session: int) -> Backlog:
        feed = self._book.live(session).feed
        return Backlog(feed.taken, feed.dropped)

    def _forget(self, session: int | None) -> None:
        if session is not None:
            self._intakes.pop(session, None)

    def _give_way(self, session: int) -> None:
        """A foreground request begins."""
        if (intake := self._intakes.get(session)) is not None:
            self._batching.give_way(intake)

    def _tell(self, session: int) -> None:
        for told in self.after_batch:
            told(session)

    # --- the tasks ------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Ingest whatever is pending, for ever."""
        async with trio.open_nursery() as nursery:
            while True:
                self._news = trio.Event()
                due, self._due = self._due, set()
                for session in due:
                    intake = self._intakes.get(session)
                    if intake is not None and intake.scope is None and self._may_go_on(intake):
                        intake.scope, intake.ended = trio.CancelScope(), trio.Event()
                        nursery.start_soon(self._work, intake, intake.scope)
                await self._news.wait()

    def _may_go_on(self, intake: Intake) -> bool:
        return intake.has_work and intake.session not in self._book.fenced

    async def _work(self, intake: Intake, scope: trio.CancelScope) -> None:
        """Ingest batch after batch; whatever goes wrong with a session goes wrong with it alone."""
        with scope:
            while self._may_go_on(intake):
                if intake.batch is None and not intake.backlog.has_work:
                    await self._cover(intake)
                    continue
                try:
                    await self._next_batch(intake)
                except StoreFailed:
                    await trio.sleep(PAUSE)  # the disk is full, say: nothing of the batch is lost meanwhile
        intake.scope = None
        intake.ended.set()
        self._look_at(intake.session)
        async with self._resting:
            self._resting.notify_all()

    async def _cover(self, intake: Intake) -> None:
        intake.waited_for = False
        try:
            await self._batching.cover(intake)
        except Refusal as refusal:
            _LOG.info("session %s: its KV is not computed again: %s", intake.session, refusal.code)
        except Exception:
            _LOG.exception("session %s: its KV is not computed again", intake.session)

    async def _next_batch(self, intake: Intake) -> None:
        """Ingest a batch, or drop what cannot be ingested. Raises StoreFailed: it is to be tried again."""
        session = intake.session
        try:
            await self._batching.ingest(intake, self.patience)
        except StoreFailed:
            raise
        except (UnknownSession, SessionPurged, SessionDamaged):
            if session not in self._book.fenced:  # else it may stay after all, and goes on then
                intake.clear()
        except Refusal as refusal:
            _LOG.warning("session %s takes no data: %s", session, refusal.code)
            await self._batching.drop(intake)
        except Exception:
            _LOG.exception("a batch of session %s failed", session)
            await self._batching.drop(intake)
