"""The engine room: the loop that plans ticks, has the worker run them, and hands what they drew to the log.

`plan` -> send the tick -> tokens stream back (provisional) -> `settle` -> commit, deliver. The commit of one tick
overlaps the next. The worker may die at any moment: what ran ends with an error, what waits goes on with the next.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence, Set
from contextlib import aclosing

import trio

from superfluid.daemon.book import Book
from superfluid.daemon.bus import Bus
from superfluid.daemon.committing import Committer, Piece
from superfluid.daemon.generation import Generation, Shown
from superfluid.daemon.in_flight import InFlight
from superfluid.daemon.loading import load_model
from superfluid.daemon.metrics import Metrics
from superfluid.daemon.worker import LoadRefused, Worker, WorkerDied
from superfluid.protocol.codes import Channel, Finish
from superfluid.protocol.refusals import GenerationFailed, Refusal
from superfluid.protocol.ticks import (
    Drawn,
    Forget,
    Forgotten,
    Hold,
    Interrupt,
    KvChange,
    Limit,
    Load,
    Moved,
    Outcome,
    Park,
    Parked,
    Ready,
    Retire,
    Shift,
)
from superfluid.scheduler.planning import begin, plan, settle
from superfluid.scheduler.schedule import Schedule

_LOG = logging.getLogger("superfluid.engine_room")

_Order = Forget | Hold | Limit | Park | Shift | Retire

FAILURES = 3
"""Workers in a row that die without one good tick; then none is started until somebody asks for something."""

BACKOFF = (0.0, 0.5, 2.0)
"""Seconds before a worker is started again, by the number of failures."""


def _one_of(deaths: BaseExceptionGroup[WorkerDied]) -> WorkerDied:
    """Several tasks notice one death, each in nurseries of its own."""
    first = deaths.exceptions[0]
    return _one_of(first) if isinstance(first, BaseExceptionGroup) else first


class EngineRoom:
    """Runs the generations of one model. `load` is what every worker is told first; `lease_ms` goes to each tool
    call."""

    def __init__(
        self,
        book: Book,
        bus: Bus,
        load: Load,
        argv: tuple[str, ...],
        notice: Callable[[str], None],
        lease_ms: int = 0,
    ) -> None:
        self._bus = bus
        self._load = load
        self._argv = argv
        self._notice = notice
        self.schedule = Schedule(lanes=load.lanes)
        self.in_flight = InFlight()
        self.kv: dict[int, KvChange] = {}
        """where the worker last said that sessions' KV lies; a mirror, empty after a respawn"""
        self._lost_kv: set[int] = set()
        self.restarted: list[Callable[[Set[int]], None]] = []
        """are told when another worker is there, with the sessions whose KV is gone"""
        self._committer = Committer(book, self.in_flight, self.cancel, self._lost, lease_ms)
        self._tickets: dict[int, trio.Event] = {}
        self._parked: trio.Event | None = None
        self._held: Hold | None = None
        self._limit: Limit | None = None
        self._orders: list[_Order] = []
        """what the worker is to be told between ticks"""
        self._work = trio.Event()
        self._asked = trio.Event()
        self._interrupt = trio.Event()
        self._at_once = trio.Event()
        self._worker: Worker | None = None
        self._tick: int | None = None
        self._failures = 0
        self.respawns = 0
        self.metrics = Metrics()
        self.touched: Callable[[int], None] = lambda session: None
        """told of each session that is about to use its KV"""
        self.ready: Ready | None = None
        """what the last worker said of itself"""
        self.threads = 0
        """compute threads in use at the last tick"""

    # --- what the use cases call ----------------------------------------------------------------------------------

    def submit(self, generation: Generation) -> None:
        """Queue a generation; it is busy from now on. The caller follows it to its end. Raises QueueFull."""
        preempts, urgent = self.schedule.preempts(generation.job), self.schedule.urgent(generation.job)
        self.schedule.submit(generation.job)
        self.in_flight.add(generation)
        self.touched(generation.session)
        self._asked.set()
        if urgent and self._tick is not None:
            self._at_once.set()
        self._wake(interrupt=preempts or urgent)

    def cancel(self, generation: Generation) -> None:
        """End a generation soon, with finish 4; no effect on one that is ending already."""
        self.schedule.cancel(generation.job.lane)
        self._wake(interrupt=True)
        if self._worker is None and not generation.job.started:
            # Nobody plans ticks before the next worker is there: what never ran ends at once, and leaves no record.
            self.schedule.remove(generation.job)
            generation.end(Finish.CANCELLED)
            self.in_flight.release(generation)

    async def forget(self, sessions: Sequence[int]) -> None:
        """Return once the worker holds nothing of these sessions any more; at once where there is no worker."""
        if self._worker is None:
            return
        ticket = max(self._tickets, default=0) + 1
        done = self._tickets[ticket] = trio.Event()
        self._order(Forget(ticket, tuple(sessions)))
        await done.wait()
        for session in sessions:
            self.kv.pop(session, None)

    def hold(self, sessions: Sequence[int]) -> None:
        """Keep the KV of these sessions before that of all others; replaces what was held before."""
        if self._held or sessions:
            self._held = Hold(tuple(sessions))
            self._order(self._held)

    def shift(self, session: int, start: int, count: int) -> None:
        """Take `count` tokens, from index `start` on, out of the session's idle sequence, where the worker can: its
        stream has lost them, and what is behind them moves down. Else what is missing is prefilled."""
        self._order(Shift(session, start, count))

    def retire(self, sessions: Sequence[int], seconds: float) -> None:
        """Keep the KV of these sessions on disk at most, which may take so long to write."""
        self._order(Retire(tuple(sessions), int(seconds * 1000)))

    def limit(self, host_bytes: int | None) -> None:
        """Let so much KV lie in host memory; None is what the settings say."""
        limit = Limit(self._load.host_bytes if host_bytes is None else host_bytes)
        self._limit = None if host_bytes is None else limit
        self._order(limit)

    @property
    def host_bytes(self) -> int:
        """How much KV may lie in host memory by the settings."""
        return self._load.host_bytes

    async def park(self, seconds: float) -> None:
        """Have what KV is held written to disk, as far as the time goes. For an engine room that has come to rest."""
        if self._worker is None or not self._load.park or seconds <= 0:
            return
        self._parked = trio.Event()
        self._order(Park(int(seconds * 1000)))
        await self._parked.wait()

    def _order(self, order: _Order) -> None:
        if self._worker is None:
            return  # the next one holds nothing yet, and is told of holds and limits when it starts
        self._orders.append(order)
        self._wake(interrupt=True)

    def _wake(self, *, interrupt: bool) -> None:
        self._work.set()
        if interrupt and self._tick is not None:
            self._interrupt.set()

    # --- the worker's life ----------------------------------------------------------------------------------------

    async def start(self, progress: Callable[[int], None]) -> Ready:
        """Start the first worker and load the model. Raises LoadRefused, WorkerDied; then none is running."""
        worker = Worker.spawn(self._argv)
        try:
            self.ready = ready = await load_model(worker, self._load, progress)
            self.threads = ready.threads
            self._mirror(ready.kv)
            self._orders += [order for order in (self._held, self._limit) if order is not None]
        except BaseException:
            worker.kill()  # it has nothing to lose, and may be deep in a load
            await worker.stop()
            raise
        self._worker = worker  # not before: a worker that loads holds nothing that could be forgotten
        return ready

    async def run(self) -> None:
        """Serve for ever: one worker after another. Call `start` first."""
        try:
            while True:
                try:
                    await self._serve()
                except WorkerDied as death:
                    await self._bury(death)
                await self._respawn()
        finally:
            if self._worker is not None:
                await self._worker.stop()
                self._worker = None

    async def _bury(self, death: WorkerDied) -> None:
        assert self._worker is not None
        await self._worker.stop()
        self._worker = None
        self._tick = None
        self._lost_kv |= self.kv.keys()
        self.kv.clear()
        self._orders.clear()
        if self._parked is not None:
            self._parked.set()
        for done in self._tickets.values():
            done.set()  # what died holds nothing any more
        self._tickets.clear()
        self._notice(f"{death}; starting another")
        self.schedule.worker_died()
        waiting = {job.lane for job in self.schedule.waiting}
        # What ran ends, and so does what was settled but could not be handed over to the log any more.
        for generation in self.in_flight.all():
            if generation.job.lane not in waiting:
                self.in_flight.drop(generation, GenerationFailed(f"{death}; what was committed is kept"))

    async def _respawn(self) -> None:
        while self._worker is None:
            if self._failures >= FAILURES:
                self._give_up()
                self._asked = trio.Event()
                await self._asked.wait()
            await trio.sleep(BACKOFF[min(self._failures, len(BACKOFF) - 1)])
            self._failures += 1
            self.respawns += 1
            try:
                await self.start(lambda _: None)
            except (WorkerDied, LoadRefused) as fault:
                self._notice(f"the engine worker did not come back: {fault}")
                continue
            lost, self._lost_kv = self._lost_kv - self.kv.keys(), set()
            for told in self.restarted:
                told(lost)

    def _give_up(self) -> None:
        reason = f"the engine worker failed {self._failures} times in a row; the next request tries again"
        self._notice(reason)
        for generation in self.in_flight.all():
            self.schedule.remove(generation.job)
            self.in_flight.drop(generation, GenerationFailed(reason))
        self._failures = FAILURES - 1

    # --- ticks ----------------------------------------------------------------------------------------------------

    async def _serve(self) -> None:
        """Run ticks with the current worker until it dies: WorkerDied."""
        worker = self._worker
        assert worker is not None
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
                        nursery.start_soon(self._listen, worker, send_outcome)
                        nursery.start_soon(self._loop, worker, outcomes, send_pieces)
                except* WorkerDied as deaths:
                    death = _one_of(deaths)
        if death is not None:
            raise death

    async def _listen(self, worker: Worker, outcomes: trio.MemorySendChannel[Outcome]) -> None:
        async with aclosing(worker.replies()) as replies:
            async for reply in replies:
                match reply:
                    case Drawn(tokens=tokens):
                        self._show(tokens)
                    case Outcome():
                        await outcomes.send(reply)
                    case Forgotten(ticket=ticket):
                        if (done := self._tickets.pop(ticket, None)) is not None:
                            done.set()
                    case Moved(kv=kv):
                        self._mirror(kv)
                    case Parked(kv=kv):
                        self._mirror(kv)
                        if self._parked is not None:
                            self._parked.set()
                    case _:
                        _LOG.warning("unexpected %s from the worker", type(reply).__name__)

    async def _loop(
        self,
        worker: Worker,
        outcomes: trio.MemoryReceiveChannel[Outcome],
        pieces: trio.MemorySendChannel[tuple[Piece, ...]],
    ) -> None:
        while True:
            await self._step(worker, outcomes, pieces)

    async def _step(
        self,
        worker: Worker,
        outcomes: trio.MemoryReceiveChannel[Outcome],
        pieces: trio.MemorySendChannel[tuple[Piece, ...]],
    ) -> None:
        """Wait for something to do, then one tick."""
        self._interrupt, self._at_once = trio.Event(), trio.Event()
        await self._send_orders(worker)
        # Handing over may take a while, and more may be cancelled or ordered meanwhile.
        while cancelled := self.schedule.take_cancelled():
            await self._hand_over(pieces, [self._committer.piece(job.lane, Finish.CANCELLED) for job in cancelled])
        now = trio.current_time()
        tick = plan(self.schedule, now)
        if tick is None:
            self._work = trio.Event()
            if not self._orders:
                await self._work.wait()
            return
        begin(self.schedule, tick, now)
        self._tick = tick.number
        if self._orders:
            self._interrupt.set()
        await worker.send(tick)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._pass_interrupt, worker, tick.number)
            outcome = await outcomes.receive()
            nursery.cancel_scope.cancel()
        self._tick = None
        self._failures = 0
        self.threads = outcome.threads
        self.metrics.tick(outcome)
        self._mirror(outcome.kv)
        await self._hand_over(pieces, [self._committer.settled(one) for one in settle(self.schedule, outcome)])

    async def _hand_over(
        self, pieces: trio.MemorySendChannel[tuple[Piece, ...]], batch: Sequence[Piece | None]
    ) -> None:
        # A generation whose commit failed is gone, its lane perhaps not yet.
        known = tuple(piece for piece in batch if piece is not None)
        for piece in known:
            self._publish(piece.generation.session, piece.cut.shown)
        await pieces.send(known)

    async def _pass_interrupt(self, worker: Worker, number: int) -> None:
        await self._interrupt.wait()
        at_once = self._at_once.is_set()
        with trio.CancelScope(shield=True):  # the tick may end now: what was begun is sent whole
            await self._send_orders(worker)
            await worker.send(Interrupt(number, at_once))
        if not at_once:
            await self._at_once.wait()
            with trio.CancelScope(shield=True):
                await worker.send(Interrupt(number, at_once=True))

    async def _send_orders(self, worker: Worker) -> None:
        while self._orders:
            await worker.send(self._orders.pop(0))

    def _show(self, tokens: Sequence[tuple[int, int]]) -> None:
        drawn: dict[int, list[int]] = {}
        for lane, token in tokens:
            drawn.setdefault(lane, []).append(token)
        for lane, run in drawn.items():
            generation = self.in_flight.of_lane(lane)
            if generation is not None:
                self._publish(generation.session, generation.draw(run))

    def _publish(self, session: int, shown: Shown) -> None:
        for channel, text in shown:
            if channel is not Channel.TOOL_CALL:  # nobody can do anything with half a call
                self._bus.publish_provisional(session, channel, text)

    def _mirror(self, changes: Sequence[KvChange]) -> None:
        for change in changes:
            if change.tier:
                self.kv[change.session] = change
            else:
                self.kv.pop(change.session, None)

    def _lost(self, generations: Sequence[Generation], refusal: Refusal) -> None:
        self._notice(str(refusal))
        self._order(Forget(0, tuple(generation.session for generation in generations)))
