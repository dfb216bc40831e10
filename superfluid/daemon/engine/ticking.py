"""The loop that plans ticks, has the worker run them, and hands what they drew to the log.

`plan` -> send the tick -> tokens stream back (provisional) -> `settle` -> commit, deliver. The worker stands still
between an outcome and the next tick: so that one is sent, unless there are orders, before any other task runs, those
that say what was drawn included. The commit of one tick overlaps the next.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from contextlib import aclosing

import trio

from superfluid.daemon.engine.committing import Committer, Piece
from superfluid.daemon.engine.mirror import Mirror
from superfluid.daemon.engine.orders import Orders
from superfluid.daemon.engine.provisional import Provisional
from superfluid.daemon.engine.watchdog import Watchdog
from superfluid.daemon.engine.worker import Worker, WorkerDied
from superfluid.daemon.metrics import Metrics
from superfluid.protocol.codes import Finish
from superfluid.protocol.ticks import Alive, Drawn, Forgotten, Interrupt, Moved, Outcome, Parked, Tick
from superfluid.scheduler.planning import begin, plan, settle
from superfluid.scheduler.schedule import Schedule

_LOG = logging.getLogger("superfluid.ticking")


def _one_of(deaths: BaseExceptionGroup[WorkerDied]) -> WorkerDied:
    """Several tasks notice one death, each in nurseries of its own."""
    first = deaths.exceptions[0]
    return _one_of(first) if isinstance(first, BaseExceptionGroup) else first


class _Batches:
    """What ticks drew, on its way to the log in batches, in order: a generation may have a piece in each."""

    def __init__(self, pieces: trio.MemorySendChannel[tuple[Piece, ...]]) -> None:
        self._pieces = pieces
        self._waiting: list[tuple[Piece, ...]] = []

    def give(self, batch: tuple[Piece, ...]) -> None:
        """Hand it over if the log has room for it, and nothing waits before it."""
        self._waiting.append(batch)
        with contextlib.suppress(trio.WouldBlock, trio.BrokenResourceError):
            while self._waiting:
                self._pieces.send_nowait(self._waiting[0])
                del self._waiting[0]

    async def taken(self) -> None:
        """Return once everything is handed over. Cancelled, or with BrokenResourceError where nobody commits any
        more, the rest still waits."""
        while self._waiting:
            await self._pieces.send(self._waiting[0])
            del self._waiting[0]


class Ticking:
    """Runs the ticks of one schedule, with one worker after another."""

    def __init__(
        self,
        schedule: Schedule,
        orders: Orders,
        kv: Mirror,
        committer: Committer,
        provisional: Provisional,
        watchdog: Watchdog,
        metrics: Metrics,
    ) -> None:
        self._schedule = schedule
        self._orders = orders
        self._kv = kv
        self._committer = committer
        self._provisional = provisional
        self._watchdog = watchdog
        self._metrics = metrics
        self._work = trio.Event()
        self._interrupt = trio.Event()
        self._at_once = trio.Event()
        self._tick: int | None = None
        self.threads = 0
        """compute threads in use at the last tick"""
        self.worked = False
        """whether the worker has finished a tick"""

    def wake(self, *, interrupt: bool = False, at_once: bool = False) -> None:
        """There is something to do: now, where nothing runs; with `interrupt`, after the round in progress; with
        `at_once`, in it."""
        if self._tick is not None and at_once:
            self._at_once.set()
        if self._tick is not None and (interrupt or at_once):
            self._interrupt.set()
        self._work.set()

    async def run(self, worker: Worker) -> None:
        """Run ticks with this worker until it dies: WorkerDied."""
        self.worked = False
        send_pieces, pieces = trio.open_memory_channel[tuple[Piece, ...]](1)
        send_outcome, outcomes = trio.open_memory_channel[Outcome](1)
        death: WorkerDied | None = None
        async with trio.open_nursery() as commits:
            commits.start_soon(self._committer.run, pieces)
            # Closing its end lets the committer finish what was settled before the death is told.
            with send_pieces:
                try:
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(worker.forward_log)
                        nursery.start_soon(self._watchdog.watch, worker, lambda: self._owed_by(worker))
                        nursery.start_soon(self._listen, worker, send_outcome)
                        nursery.start_soon(self._loop, worker, outcomes, send_pieces)
                except* WorkerDied as deaths:
                    death = _one_of(deaths)
        self._tick = None
        if death is not None:
            raise death

    def _owed_by(self, worker: Worker) -> bool:
        """Whether the worker has something to do, or to take."""
        return self._tick is not None or self._orders.owed or worker.sending

    async def _loop(
        self,
        worker: Worker,
        outcomes: trio.MemoryReceiveChannel[Outcome],
        pieces: trio.MemorySendChannel[tuple[Piece, ...]],
    ) -> None:
        """Orders, then what was cancelled, then a tick; over and over."""
        drawn = _Batches(pieces)
        try:
            while True:
                self._interrupt, self._at_once, self._work = trio.Event(), trio.Event(), trio.Event()
                await self._orders.send(worker)
                # From here on nothing else runs until the tick is on its way.
                cancelled = self._schedule.take_cancelled()
                self._hand_over(drawn, [self._committer.piece(job.lane, Finish.CANCELLED) for job in cancelled])
                planned = plan(self._schedule, trio.current_time())
                if planned is not None:
                    begin(self._schedule, planned)
                    self._tick = planned.tick.number
                    await worker.send(planned.tick)
                await drawn.taken()
                if planned is not None:
                    await self._outcome(worker, planned.tick, outcomes, drawn)
                elif not self._orders.waiting:
                    await self._work.wait()
        finally:
            # What was drawn is kept, even where the worker dies now, or has died right after it said so.
            with contextlib.suppress(trio.WouldBlock):
                self._settle(outcomes.receive_nowait(), drawn)
            # Where all ends, nobody commits any more.
            with trio.CancelScope(shield=True), contextlib.suppress(trio.BrokenResourceError):
                await drawn.taken()

    async def _outcome(
        self, worker: Worker, tick: Tick, outcomes: trio.MemoryReceiveChannel[Outcome], drawn: _Batches
    ) -> None:
        """Settle what comes of a tick that was sent; the worker is told of interrupts meanwhile."""
        if self._orders.waiting:
            self._interrupt.set()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._pass_interrupt, worker, tick.number)
            self._settle(await outcomes.receive(), drawn)
            nursery.cancel_scope.cancel()

    def _settle(self, outcome: Outcome, drawn: _Batches) -> None:
        self._provisional.rest(outcome)
        self._hand_over(drawn, [self._committer.settled(one) for one in settle(self._schedule, outcome)])

    def _hand_over(self, drawn: _Batches, batch: Sequence[Piece | None]) -> None:
        # A generation whose commit failed is gone, its lane perhaps not yet.
        known = tuple(piece for piece in batch if piece is not None)
        for piece in known:
            self._provisional.publish(piece.generation.session, piece.cut.shown)
        if known:
            drawn.give(known)

    async def _pass_interrupt(self, worker: Worker, number: int) -> None:
        await self._interrupt.wait()
        at_once = self._at_once.is_set()
        with trio.CancelScope(shield=True):  # the tick may end now: what was begun is sent whole
            await self._orders.send(worker)
            await worker.send(Interrupt(number, at_once))
        if not at_once:
            await self._at_once.wait()
            with trio.CancelScope(shield=True):
                await worker.send(Interrupt(number, at_once=True))

    def _ended(self, outcome: Outcome) -> None:
        """The worker has nothing to do any more, whenever the log has taken what it did."""
        self._tick = None
        self.worked = True
        self._watchdog.tick_ended()
        self.threads = outcome.threads
        self._metrics.tick(outcome)
        self._kv.told(outcome.kv)

    async def _listen(self, worker: Worker, outcomes: trio.MemorySendChannel[Outcome]) -> None:
        async with aclosing(worker.replies()) as replies:
            async for reply in replies:
                match reply:
                    case Drawn(tokens=tokens):
                        self._provisional.drawn(tokens)
                    case Outcome():
                        self._ended(reply)
                        await outcomes.send(reply)
                    case Forgotten(ticket=ticket):
                        self._orders.forgotten(ticket)
                    case Moved(kv=kv):
                        self._kv.told(kv)
                    case Parked(kv=kv):
                        self._kv.told(kv)
                        self._orders.parked()
                    case Alive():
                        pass
                    case _:
                        _LOG.warning("unexpected %s from the worker", type(reply).__name__)
