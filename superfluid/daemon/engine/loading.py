"""A worker's first minutes: it loads the model."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing

import trio

from superfluid.daemon.engine.watchdog import Watchdog
from superfluid.daemon.engine.worker import LoadRefused, Worker, WorkerDied
from superfluid.protocol.ticks import Load, Ready


async def load_model(worker: Worker, load: Load, progress: Callable[[int], None], watchdog: Watchdog) -> Ready:
    """The worker's word that it is ready; `progress` is told thousandths. Raises LoadRefused, WorkerDied."""
    end: Ready | LoadRefused | WorkerDied | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(worker.forward_log)
        nursery.start_soon(watchdog.watch, worker, lambda: True)
        try:
            async with aclosing(worker.load(load)) as steps:
                async for step in steps:
                    if isinstance(step, Ready):
                        end = step
                    else:
                        progress(step)
        except (LoadRefused, WorkerDied) as fault:  # raised below, as itself: a nursery would wrap it
            end = fault
        nursery.cancel_scope.cancel()
    assert end is not None, "a load ends with Ready or an exception"
    if isinstance(end, Exception):
        raise end
    return end
