"""One batch of data after the other becomes part of a session's input (decisions 18 to 22).

A batch is everything pending. It is decided on the session as it is, its KV is computed, and only then it is
committed and told. Foreground requests of the session come first: they cancel the computing, which goes on from where
it was; a batch that was overtaken is decided again. KV is a view: where it cannot be had, the batch is committed all
the same.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import trio

from superfluid.daemon.book import Book
from superfluid.daemon.bus import Bus, Ended, Subscription
from superfluid.daemon.engine.generation import Generation
from superfluid.daemon.engine.room import EngineRoom
from superfluid.daemon.feeds.intake import Intake
from superfluid.daemon.feeds.lines import lines_of
from superfluid.daemon.feeds.planned import Plan, changes_input, planned
from superfluid.daemon.feeds.questions import room_for_flashes
from superfluid.daemon.served import ServedModel
from superfluid.daemon.sessions.generating import GREEDY, Generating
from superfluid.protocol.codes import Finish
from superfluid.protocol.records import Event, Ingested, Span, span_of
from superfluid.protocol.refusals import Refusal, StoreFailed
from superfluid.sessions.backlog import Batch
from superfluid.sessions.cuts import Cuts
from superfluid.sessions.ingest import Line, Room, decide_batch, space_for_lines
from superfluid.sessions.state import SessionState

_LOG = logging.getLogger("superfluid.batching")

INTERRUPTED = 0.05
"""Seconds of its patience that each question costs a batch at least: even the shortest interrupts its computing."""

OVERTAKEN = 3
"""How often turns may come between a batch and its commit before it is committed without having been computed."""

FAULTS = 3
"""How often the computing may fail before a batch is committed without it."""


class Batching:
    """Ingests a batch of one session. `tell` is told of each session of which one is durable."""

    def __init__(
        self,
        book: Book,
        bus: Bus,
        room: EngineRoom,
        generating: Generating,
        model: ServedModel,
        limits: Room,
        tell: Callable[[int], None],
    ) -> None:
        self._book = book
        self._bus = bus
        self._room = room
        self._generating = generating
        self._model = model
        self._limits = limits
        self._tell = tell
        self._places = generating.background_places(4)

    async def ingest(self, intake: Intake, patience: float) -> None:
        """Make the next batch part of the session, or go on with the one that is under way.

        Foreground requests may hold it up for `patience` seconds. Raises StoreFailed, and what is wrong with the
        session or with the batch.
        """
        intake.patient_until = trio.current_time() + patience
        intake.patience = patience
        await self._free(intake)
        batch = intake.take()
        session = intake.session
        state = await self._book.now(session)
        space = space_for_lines(state, *await self._room_for(state))
        lines = await lines_of(self._model, batch.entries, space, newest=state.feed.window is not None)
        faults = overtaken = 0
        plan: Plan | None = None
        while True:
            await self._free(intake)
            # A session that goes on and on leaves no time to compute; between two turns there is time to commit.
            late = overtaken >= OVERTAKEN and trio.current_time() >= intake.patient_until
            if late or faults >= FAULTS:
                if await self._commit(intake, batch, lambda state: self._plan(state, batch, lines), cold=True):
                    return
                continue
            state = await self._book.now(session)
            if plan is None or await plan.still(state) is None:  # else it was interrupted, and goes on
                plan = await self._plan(state, batch, lines)
            computed = await self._compute(intake, plan)
            faults += computed is None
            if computed and await self._commit(intake, batch, plan.still):
                return
            overtaken += self._book.live(session).feed.ever != plan.state.ever

    async def drop(self, intake: Intake) -> None:
        """Nothing of the batch can be ingested: say so in the log. Raises StoreFailed: then it stays under way, as
        unsaid it would hold up whoever counts."""
        session, batch = intake.session, intake.take()
        try:
            async with self._book.writing(session) as state:
                dropped = batch.dropped + len(batch.entries)
                await self._book.commit_one(state, Ingested(state.feed.version + 1, (), (), 0, dropped))
        except StoreFailed:
            raise
        except Refusal as refusal:
            _LOG.warning("session %s: that data was dropped is not noted: %s", session, refusal.code)
        except Exception:
            _LOG.exception("session %s: that data was dropped is not noted", session)
        intake.done(len(batch.entries))
        self._tell(session)

    def give_way(self, intake: Intake) -> None:
        """A foreground request of the session begins."""
        if intake.job is not None and self._has_to_wait(intake):
            self._room.cancel(intake.job)

    # --- who goes first -------------------------------------------------------------------------------------------

    def _has_to_wait(self, intake: Intake) -> bool:
        in_flight = self._room.in_flight
        asked = in_flight.busy(intake.session) and intake.patience > 0
        return asked or in_flight.of_session(intake.session) is not None

    async def _free(self, intake: Intake) -> None:
        """Wait while the session generates, while a tool call is open, and, for a time, while it is asked."""
        in_flight, session = self._room.in_flight, intake.session
        while True:
            if (generation := in_flight.of_session(session)) is not None:
                if generation.ended.is_set():  # and about to be released
                    await trio.lowlevel.checkpoint()
                await generation.ended.wait()
            elif in_flight.busy(session) and intake.patience > 0:
                began = trio.current_time()
                with trio.move_on_after(intake.patience):
                    await in_flight.quiet(session)
                intake.patience -= max(trio.current_time() - began, INTERRUPTED)
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

    # --- deciding -------------------------------------------------------------------------------------------------

    async def _plan(self, state: SessionState, batch: Batch, lines: Sequence[Line]) -> Plan:
        return planned(state, decide_batch(state, lines, batch.dropped, *await self._room_for(state)))

    async def _room_for(self, state: SessionState) -> tuple[Span, Room]:
        """What opens a turn for data, and the room that there is for them."""
        head, _ = self._model.data_frame(state)
        reserve = max(self._limits.reserve, await room_for_flashes(self._model, state))
        return head, replace(self._limits, reserve=reserve)

    # --- computing ------------------------------------------------------------------------------------------------

    async def _compute(self, intake: Intake, plan: Plan) -> bool | None:
        """Compute the KV of a batch; False where it was interrupted, None where that failed.

        Entries leave the KV after that, by a shift; before it only where both do not fit.
        """
        if not span_of(plan.body):
            return True
        goal = plan.grown
        if len(goal.tokens) > self._model.window:
            goal = plan.after
            if not plan.shifted:
                self._shift(intake.session, plan.cuts)
            plan.shifted = True
        return await self._prefill(intake, goal, plan.state)

    async def _prefill(self, intake: Intake, goal: SessionState, state: SessionState) -> bool | None:
        """Have the session's KV cover `goal`, as long as the session stays in `state`."""
        async with self._places:
            return await self._prefill_now(intake, goal, state)

    async def _prefill_now(self, intake: Intake, goal: SessionState, state: SessionState) -> bool | None:
        session = intake.session
        with self._book.passing(GREEDY, like=goal) as passing:
            subscription = self._bus.subscribe(session, provisional=False)
            try:
                intake.job = job = await self._generating.admit_in_time(passing, 0, kv_session=session)
                if job is None:
                    return True  # nobody will need the KV
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._cancel_when_changed, subscription, job)
                    if self._has_to_wait(intake) or self._book.live(session).feed.ever != state.ever:
                        self._room.cancel(job)
                    await job.ended.wait()
                    nursery.cancel_scope.cancel()
            finally:
                self._bus.detach(subscription)
                if intake.job is not None:
                    await self._generating.see_off(intake.job)
                intake.job = None
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
        intake: Intake,
        batch: Batch,
        plan_for: Callable[[SessionState], Awaitable[Plan | None]],
        *,
        cold: bool = False,
    ) -> bool:
        """Make the batch durable and tell of it; False where the session generates, or there is no plan for how it is
        now. `cold` without KV."""
        session = intake.session
        async with self._book.writing(session) as state:
            if self._room.in_flight.of_session(session) is not None or state.open_calls:
                return False
            if (plan := await plan_for(state)) is None:
                return False
            await self._book.commit_one(state, plan.body)
            intake.done(plan.body.dropped - batch.dropped)
            if plan.cuts.ranges and not plan.shifted:
                self._shift(session, plan.cuts)
        self._room.metrics.ingested_tokens += len(span_of(plan.body))
        self._tell(session)
        if cold or plan.cuts.ranges or self.is_behind(session):
            await self.cover(intake)
        return True

    def is_behind(self, session: int) -> bool:
        """Whether the session lacks KV of some of what it holds: of a batch that was dropped whole none was computed,
        and a turn before it may have left some to be computed. Clients wait for it (spec: streaming-facts, 2)."""
        return not self._room.kv.covers(session, self._book.live(session).tokens)

    async def cover(self, intake: Intake) -> None:
        """Have KV of all that the session holds, before anybody asks: where nothing can be shifted, what is behind a
        gap is computed again. Data that wait bring it along."""
        while not intake.backlog.pending:
            await self._free(intake)
            state = await self._book.now(intake.session)
            if await self._prefill(intake, state, state) is not False:
                return
