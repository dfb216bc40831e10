"""Ingesting: pushed entries become data on a session's input, in the background (decisions 18 to 22).

A batch is everything pending. It is decided on the session as it is, its KV is computed, and only then it is
committed and told. Foreground requests of the session come first: they cancel the computing, which goes on from where
it was; a batch that was overtaken is decided again. KV is a view: where it cannot be had, the batch is committed all
the same.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

import trio

from superfluid.daemon.book import Book
from superfluid.daemon.bus import Bus, Ended, Subscription
from superfluid.daemon.engine.generation import Generation
from superfluid.daemon.engine.room import EngineRoom
from superfluid.daemon.feeds.lines import lines_of
from superfluid.daemon.feeds.planned import Plan, changes_input, planned
from superfluid.daemon.feeds.questions import room_for_flashes
from superfluid.daemon.served import ServedModel
from superfluid.daemon.sessions.generating import GREEDY, Generating
from superfluid.protocol.codes import Finish
from superfluid.protocol.records import Event, Ingested, Span, span_of
from superfluid.protocol.refusals import (
    Refusal,
    SessionDamaged,
    SessionPurged,
    StoreFailed,
    UnknownSession,
)
from superfluid.sessions.backlog import Backlog, Batch
from superfluid.sessions.cuts import Cuts
from superfluid.sessions.ingest import Line, Room, decide_batch, space_for_lines
from superfluid.sessions.state import SessionState

_LOG = logging.getLogger("superfluid.ingesting")

PAUSE = 1.0
"""Seconds before a full disk is tried again."""

PATIENCE = 1.0
"""Seconds that foreground requests may hold up a batch. Then it is computed beside questions, and where turns follow
one another without a pause, it is committed between two of them, and the next one computes it."""

INTERRUPTED = 0.05
"""Seconds of its patience that each question costs a batch at least: even the shortest interrupts its computing."""

OVERTAKEN = 3
"""How often turns may come between a batch and its commit before it is committed without having been computed."""

FAULTS = 3
"""How often the computing may fail before a batch is committed without it."""


@dataclass(slots=True)
class _Feed:
    """One session's queue, and the work on it."""

    backlog: Backlog
    scope: trio.CancelScope | None = None
    """of the task that works on it"""
    ended: trio.Event = field(default_factory=trio.Event)
    batch: Batch | None = None
    """what is being ingested: pending no more, and not durable yet"""
    job: Generation | None = None
    patient_until: float = 0.0
    """until when the batch waits for turns to leave it time to compute"""
    patience: float = 0.0
    """seconds that questions may still hold the batch up"""


class Ingesting:
    """The queues of all sessions, and a task for each that has something in it."""

    def __init__(
        self, book: Book, bus: Bus, room: EngineRoom, generating: Generating, model: ServedModel, limits: Room
    ) -> None:
        self._book = book
        self._bus = bus
        self._room = room
        self._generating = generating
        self._model = model
        self._limits = limits
        self._feeds: dict[int, _Feed] = {}
        self._due: set[int] = set()
        """sessions that may have something to do"""
        self._news = trio.Event()
        self._resting = trio.Condition()
        self._places = generating.background_places(4)
        self.patience = PATIENCE
        self.after_batch: list[Callable[[int], None]] = []
        """are told of a session whose batch is durable"""
        room.in_flight.begun.append(self._give_way)
        bus.ends.append(self._forget)

    # --- what the use cases call ----------------------------------------------------------------------------------

    def backlog(self, session: int) -> Backlog:
        """The session's queue, to look at. Raises UnknownSession, SessionPurged."""
        feed = self._feeds.get(session)
        return feed.backlog if feed is not None else self._empty(session)

    def pending(self, session: int) -> int:
        """How many entries wait."""
        return self._feeds[session].backlog.pending if session in self._feeds else 0

    def has_work(self, session: int) -> bool:
        """Whether something waits, or is being ingested."""
        return session in self._feeds and self._has_work(self._feeds[session])

    def under_way(self, session: int) -> bool:
        """Whether a batch was taken and is not durable yet."""
        return session in self._feeds and self._feeds[session].batch is not None

    def push(self, session: int, entries: Sequence[str]) -> int:
        """Queue `entries`; how many were dropped for it. Raises as `backlog`."""
        if session not in self._feeds:
            self._feeds[session] = _Feed(self._empty(session))
        dropped = self._feeds[session].backlog.push(entries)
        self._look_at(session)
        return dropped

    async def stop(self, session: int) -> None:
        """Work on the session no more; return once nothing is under way."""
        feed = self._feeds.get(session)
        if feed is not None and feed.scope is not None:
            feed.scope.cancel()
            await feed.ended.wait()

    def resume(self, session: int) -> None:
        """The session stays after all."""
        self._look_at(session)

    async def rest(self) -> None:
        """Return once nothing is pending anywhere."""
        async with self._resting:
            while any(map(self._has_work, self._feeds.values())):
                await self._resting.wait()

    def _look_at(self, session: int) -> None:
        self._due.add(session)
        self._news.set()

    def _empty(self, session: int) -> Backlog:
        feed = self._book.live(session).feed
        return Backlog(feed.taken, feed.dropped)

    def _forget(self, session: int | None) -> None:
        if session is not None:
            self._feeds.pop(session, None)

    def _give_way(self, session: int) -> None:
        """A foreground request begins."""
        feed = self._feeds.get(session)
        if feed is not None and feed.job is not None and self._has_to_wait(session, feed):
            self._room.cancel(feed.job)

    def _has_to_wait(self, session: int, feed: _Feed) -> bool:
        in_flight = self._room.in_flight
        asked = in_flight.busy(session) and feed.patience > 0
        return asked or in_flight.of_session(session) is not None

    # --- the tasks ------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Ingest whatever is pending, for ever."""
        async with trio.open_nursery() as nursery:
            while True:
                self._news = trio.Event()
                due, self._due = self._due, set()
                for session in due:
                    feed = self._feeds.get(session)
                    if feed is not None and self._may_begin(session, feed):
                        feed.scope, feed.ended = trio.CancelScope(), trio.Event()
                        nursery.start_soon(self._work, session, feed)
                await self._news.wait()

    def _may_begin(self, session: int, feed: _Feed) -> bool:
        return feed.scope is None and self._has_work(feed) and session not in self._book.fenced

    def _has_work(self, feed: _Feed) -> bool:
        return feed.batch is not None or feed.backlog.has_work

    async def _work(self, session: int, feed: _Feed) -> None:
        """Ingest batch after batch; whatever goes wrong with a session goes wrong with it alone."""
        assert feed.scope is not None
        with feed.scope:
            while self._has_work(feed) and session not in self._book.fenced:
                await self._try_batch(session, feed)
        feed.scope = None
        feed.ended.set()
        self._look_at(session)
        async with self._resting:
            self._resting.notify_all()

    async def _try_batch(self, session: int, feed: _Feed) -> None:
        try:
            await self._next_batch(session, feed)
        except StoreFailed:
            await trio.sleep(PAUSE)  # the disk is full, say: nothing of the batch is lost meanwhile
        except (UnknownSession, SessionPurged, SessionDamaged):
            if session not in self._book.fenced:  # else it may stay after all, and goes on then
                feed.batch = None
                feed.backlog.take()
        except Refusal as refusal:
            _LOG.warning("session %s takes no data: %s", session, refusal.code)
            await self._drop(session, feed)
        except Exception:
            _LOG.exception("a batch of session %s failed", session)
            await self._drop(session, feed)

    async def _drop(self, session: int, feed: _Feed) -> None:
        """Nothing of the batch can be ingested: say so, and go on with the next."""
        batch = feed.batch = feed.batch or feed.backlog.take()
        try:
            async with self._book.writing(session) as state:
                dropped = batch.dropped + len(batch.entries)
                await self._book.commit_one(state, Ingested(state.feed.version + 1, (), (), 0, dropped))
        except StoreFailed:
            await trio.sleep(PAUSE)  # unsaid, it would hold up whoever counts: the batch is tried again
            return
        except Refusal as refusal:
            _LOG.warning("session %s: that data was dropped is not noted: %s", session, refusal.code)
        except Exception:
            _LOG.exception("session %s: that data was dropped is not noted", session)
        feed.batch = None
        feed.backlog.lose(len(batch.entries))
        for told in self.after_batch:
            told(session)

    async def _next_batch(self, session: int, feed: _Feed) -> None:
        feed.patient_until = trio.current_time() + self.patience
        feed.patience = self.patience
        await self._free(session, feed)
        if feed.batch is None:
            feed.batch = feed.backlog.take()
        batch = feed.batch
        state = await self._book.now(session)
        space = space_for_lines(state, *await self._room_for(state))
        lines = await lines_of(self._model, batch.entries, space, newest=state.feed.window is not None)
        faults = overtaken = 0
        plan: Plan | None = None
        while True:
            await self._free(session, feed)
            # A session that goes on and on leaves no time to compute; between two turns there is time to commit.
            late = overtaken >= OVERTAKEN and trio.current_time() >= feed.patient_until
            if late or faults >= FAULTS:
                if await self._commit(session, feed, lambda state: self._plan(state, batch, lines), cold=True):
                    return
                continue
            state = await self._book.now(session)
            if plan is None or await plan.still(state) is None:  # else it was interrupted, and goes on
                plan = await self._plan(state, batch, lines)
            computed = await self._compute(session, feed, plan)
            faults += computed is None
            if computed and await self._commit(session, feed, plan.still):
                return
            overtaken += self._book.live(session).feed.ever != plan.state.ever

    async def _free(self, session: int, feed: _Feed) -> None:
        """Wait while the session generates, while a tool call is open, and, for a time, while it is asked."""
        in_flight = self._room.in_flight
        while True:
            if (generation := in_flight.of_session(session)) is not None:
                if generation.ended.is_set():  # and about to be released
                    await trio.lowlevel.checkpoint()
                await generation.ended.wait()
            elif in_flight.busy(session) and feed.patience > 0:
                began = trio.current_time()
                with trio.move_on_after(feed.patience):
                    await in_flight.quiet(session)
                feed.patience -= max(trio.current_time() - began, INTERRUPTED)
            elif self._book.live(session).open_calls:
                await self._next_event(session)
            else:
                return

    async def _next_event(self, session: int) -> None:
        subscription = self._bus.subscribe(session, provisional=False)
        try:
            if self._book.live(session).open_calls and isinstance(await subscription.receive(), Ended):
                self._book.live(session)
                await trio.sleep_forever()  # the daemon stops: what waits for a call's result is not taken any more
        finally:
            self._bus.detach(subscription)

    async def _plan(self, state: SessionState, batch: Batch, lines: Sequence[Line]) -> Plan:
        return planned(state, decide_batch(state, lines, batch.dropped, *await self._room_for(state)))

    async def _room_for(self, state: SessionState) -> tuple[Span, Room]:
        """What opens a turn for data, and the room that there is for them."""
        head, _ = self._model.data_frame(state)
        reserve = max(self._limits.reserve, await room_for_flashes(self._model, state))
        return head, replace(self._limits, reserve=reserve)

    # --- computing ------------------------------------------------------------------------------------------------

    async def _compute(self, session: int, feed: _Feed, plan: Plan) -> bool | None:
        """Compute the KV of a batch; False where it was interrupted, None where that failed.

        Entries leave the KV after that, by a shift; before it only where both do not fit.
        """
        if not span_of(plan.body):
            return True
        goal = plan.grown
        if len(goal.tokens) > self._model.window:
            goal = plan.after
            if not plan.shifted:
                self._shift(session, plan.cuts)
            plan.shifted = True
        return await self._prefill(session, feed, goal, plan.state)

    async def _prefill(self, session: int, feed: _Feed, goal: SessionState, state: SessionState) -> bool | None:
        """Have the session's KV cover `goal`, as long as the session stays in `state`."""
        async with self._places:
            return await self._prefill_now(session, feed, goal, state)

    async def _prefill_now(self, session: int, feed: _Feed, goal: SessionState, state: SessionState) -> bool | None:
        with self._book.passing(GREEDY, like=goal) as passing:
            subscription = self._bus.subscribe(session, provisional=False)
            try:
                feed.job = job = await self._generating.admit_in_time(passing, 0, kv_session=session)
                if job is None:
                    return True  # nobody will need the KV
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._cancel_when_changed, subscription, job)
                    if self._has_to_wait(session, feed) or self._book.live(session).feed.ever != state.ever:
                        self._room.cancel(job)
                    await job.ended.wait()
                    nursery.cancel_scope.cancel()
            finally:
                self._bus.detach(subscription)
                if feed.job is not None:
                    await self._generating.see_off(feed.job)
                feed.job = None
        if job.summary is None:
            return None
        return job.summary.finish != Finish.CANCELLED

    async def _cancel_when_changed(self, subscription: Subscription, job: Generation) -> None:
        while not isinstance(message := await subscription.receive(), Ended):
            if isinstance(message, Event) and changes_input(message.body):
                break
        self._room.cancel(job)

    def _shift(self, session: int, cuts: Cuts) -> None:
        for start, stop in reversed(cuts.ranges):  # from the end, so that the others stay where they are
            self._room.orders.shift(session, start, stop - start)

    # --- committing -----------------------------------------------------------------------------------------------

    async def _commit(
        self,
        session: int,
        feed: _Feed,
        plan_for: Callable[[SessionState], Awaitable[Plan | None]],
        *,
        cold: bool = False,
    ) -> bool:
        """Make the batch durable and tell of it; False where the session generates, or there is no plan for how it is
        now. `cold` without KV."""
        assert feed.batch is not None
        async with self._book.writing(session) as state:
            if self._room.in_flight.of_session(session) is not None or state.open_calls:
                return False
            if (plan := await plan_for(state)) is None:
                return False
            await self._book.commit_one(state, plan.body)
            feed.backlog.lose(plan.body.dropped - feed.batch.dropped)
            feed.batch = None
            if plan.cuts.ranges and not plan.shifted:
                self._shift(session, plan.cuts)
        self._room.metrics.ingested_tokens += len(span_of(plan.body))
        for told in self.after_batch:
            told(session)
        if cold or plan.cuts.ranges:
            await self._cover(session, feed)
        return True

    async def _cover(self, session: int, feed: _Feed) -> None:
        """Have KV of all that the session holds, before anybody asks: where nothing can be shifted, what is behind a
        gap is computed again. Data that wait bring it along."""
        while not feed.backlog.pending:
            await self._free(session, feed)
            state = await self._book.now(session)
            if await self._prefill(session, feed, state, state) is not False:
                return
