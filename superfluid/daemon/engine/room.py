"""The engine room: what runs the generations of one model, seen from the use cases.

The worker may die at any moment: what ran ends with an error, what waits goes on with the next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set

from superfluid.daemon.book import Book
from superfluid.daemon.bus import Bus
from superfluid.daemon.engine.committing import Committer
from superfluid.daemon.engine.generation import Generation
from superfluid.daemon.engine.in_flight import InFlight
from superfluid.daemon.engine.mirror import Mirror
from superfluid.daemon.engine.orders import Orders
from superfluid.daemon.engine.provisional import Provisional
from superfluid.daemon.engine.supervision import Supervision
from superfluid.daemon.engine.ticking import Ticking
from superfluid.daemon.engine.watchdog import PATIENCE, Watchdog
from superfluid.daemon.engine.worker import Worker, WorkerDied
from superfluid.daemon.metrics import Metrics
from superfluid.protocol.codes import Finish
from superfluid.protocol.refusals import GenerationFailed, Refusal
from superfluid.protocol.ticks import Load, Ready
from superfluid.scheduler.schedule import Schedule


class EngineRoom:
    """Runs the generations of one model. `load` is what every worker is told first; `lease_ms` goes to each tool
    call; a worker that owes something and is silent for `patience` seconds is taken to hang."""

    def __init__(
        self,
        book: Book,
        bus: Bus,
        load: Load,
        argv: tuple[str, ...],
        notice: Callable[[str], None],
        lease_ms: int = 0,
        patience: float = PATIENCE,
    ) -> None:
        self._notice = notice
        self.schedule = Schedule(lanes=load.lanes)
        self.in_flight = InFlight()
        self.kv = Mirror()
        self.metrics = Metrics()
        self.orders = Orders(load, self.kv, lambda: self._ticking.wake(interrupt=True))
        watchdog = Watchdog(patience)
        self._supervision = Supervision(argv, load, watchdog, notice, self._gave_up)
        committer = Committer(book, self.in_flight, self.cancel, self._lost, lease_ms)
        provisional = Provisional(self.in_flight, bus)
        self._ticking = Ticking(self.schedule, self.orders, self.kv, committer, provisional, watchdog, self.metrics)
        self.touched: Callable[[int], None] = lambda session: None
        """told of each session that is about to use its KV"""
        self.restarted: list[Callable[[Set[int]], None]] = []
        """are told when another worker is there, with the sessions whose KV is gone"""

    @property
    def worker(self) -> Worker | None:
        """None while none is there that has loaded the model."""
        return self._supervision.worker

    @property
    def ready(self) -> Ready | None:
        """What the last worker said of itself."""
        return self._supervision.ready

    @property
    def respawns(self) -> int:
        return self._supervision.respawns

    @property
    def threads(self) -> int:
        """Compute threads in use at the last tick."""
        return self._ticking.threads

    def submit(self, generation: Generation) -> None:
        """Queue a generation; it is busy from now on. The caller follows it to its end. Raises QueueFull."""
        preempts, urgent = self.schedule.preempts(generation.job), self.schedule.urgent(generation.job)
        self.schedule.submit(generation.job)
        self.in_flight.add(generation)
        self.touched(generation.session)
        self._supervision.ask()
        self._ticking.wake(interrupt=preempts, at_once=urgent)

    def cancel(self, generation: Generation) -> None:
        """End a generation soon, with finish 4; no effect on one that is ending already."""
        self.schedule.cancel(generation.job.lane)
        self._ticking.wake(interrupt=True)
        if self.worker is None and not generation.job.started:
            # Nobody plans ticks before the next worker is there: what never ran ends at once, and leaves no record.
            self.schedule.remove(generation.job)
            generation.end(Finish.CANCELLED)
            self.in_flight.release(generation)

    async def start(self, progress: Callable[[int], None]) -> Ready:
        """Start the first worker and load the model. Raises LoadRefused, WorkerDied; then none is running."""
        ready = await self._supervision.start(progress)
        self._worker_came(ready)
        return ready

    async def run(self) -> None:
        """Serve for ever: one worker after another. Call `start` first."""
        try:
            while True:
                assert self.worker is not None
                try:
                    await self._ticking.run(self.worker)
                except WorkerDied as death:
                    await self._worker_died(death)
                self._worker_came(await self._supervision.start_again(worked=self._ticking.worked))
                lost = self.kv.take_lost()
                for told in self.restarted:
                    told(lost)
        finally:
            await self._supervision.stop()

    def _worker_came(self, ready: Ready) -> None:
        self._ticking.threads = ready.threads
        self.kv.told(ready.kv)
        self.orders.worker_came()

    async def _worker_died(self, death: WorkerDied) -> None:
        await self._supervision.stop()
        self.kv.worker_died()
        self.orders.worker_died()
        self._notice(f"{death}; starting another")
        self.schedule.worker_died()
        waiting = {job.lane for job in self.schedule.waiting}
        # What ran ends. What ended in a tick whose outcome came is committed, and gone from here.
        for generation in self.in_flight.all():
            if generation.job.lane not in waiting:
                self.in_flight.drop(generation, GenerationFailed(f"{death}; what was committed is kept"))

    def _gave_up(self, reason: str) -> None:
        for generation in self.in_flight.all():
            self.schedule.remove(generation.job)
            self.in_flight.drop(generation, GenerationFailed(reason))

    def _lost(self, generations: Sequence[Generation], refusal: Refusal) -> None:
        self._notice(str(refusal))
        self.orders.forget_soon([generation.session for generation in generations])
