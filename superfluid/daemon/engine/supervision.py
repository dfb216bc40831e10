"""The worker's life: it is started, and another one when it has died, until too many died in a row."""

from __future__ import annotations

from collections.abc import Callable

import trio

from superfluid.daemon.engine.loading import load_model
from superfluid.daemon.engine.watchdog import Watchdog
from superfluid.daemon.engine.worker import LoadRefused, Worker, WorkerDied
from superfluid.protocol.ticks import Load, Ready

FAILURES = 3
"""Workers in a row that die without one good tick; then none is started until somebody asks for something."""

BACKOFF = (0.0, 0.5, 2.0)
"""Seconds before a worker is started again, by the number of failures."""


class Supervision:
    """Keeps one worker with the model loaded. `load` is what every worker is told first; `gave_up` is told why none
    is started for now."""

    def __init__(
        self,
        argv: tuple[str, ...],
        load: Load,
        watchdog: Watchdog,
        notice: Callable[[str], None],
        gave_up: Callable[[str], None],
    ) -> None:
        self._argv = argv
        self._load = load
        self._watchdog = watchdog
        self._notice = notice
        self._gave_up = gave_up
        self._asked = trio.Event()
        self._failures = 0
        self.worker: Worker | None = None
        """the one that has loaded the model; None while there is none"""
        self.ready: Ready | None = None
        """what the last worker said of itself"""
        self.respawns = 0

    async def start(self, progress: Callable[[int], None]) -> Ready:
        """Start a worker and load the model. Raises LoadRefused, WorkerDied; then none is running."""
        worker = Worker.spawn(self._argv)
        try:
            self.ready = ready = await load_model(worker, self._load, progress, self._watchdog)
        except BaseException:
            worker.kill()  # it has nothing to lose, and may be deep in a load
            await worker.stop()
            raise
        self.worker = worker  # not before: a worker that loads holds nothing that could be forgotten
        return ready

    async def start_again(self, *, worked: bool) -> Ready:
        """Start a worker in the place of one that died; `worked` says whether that one finished a tick. Where this
        comes to nothing time and again, it is not tried before somebody asks."""
        if worked:
            self._failures = 0
        while True:
            if self._failures >= FAILURES:
                self._give_up()
                self._asked = trio.Event()
                await self._asked.wait()
            await trio.sleep(BACKOFF[min(self._failures, len(BACKOFF) - 1)])
            self._failures += 1
            self.respawns += 1
            try:
                return await self.start(lambda _: None)
            except (WorkerDied, LoadRefused) as fault:
                self._notice(f"the engine worker did not come back: {fault}")

    def _give_up(self) -> None:
        reason = f"the engine worker failed {self._failures} times in a row; the next request tries again"
        self._notice(reason)
        self._gave_up(reason)
        self._failures = FAILURES - 1

    def ask(self) -> None:
        """Somebody wants something: it is worth another try."""
        self._asked.set()

    async def stop(self) -> None:
        """Have the worker leave, or bury it."""
        if self.worker is not None:
            await self.worker.stop()
            self.worker = None
