"""Signs of life: what takes long tells the daemon now and then that it goes on."""

from __future__ import annotations

import time
from collections.abc import Callable

from superfluid.protocol.ticks import Alive

EVERY = 0.25
"""Seconds between two signs at the least."""


class Pulse:
    """`tell` takes the signs; `clock` is seconds."""

    def __init__(self, tell: Callable[[Alive], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._tell = tell
        self._clock = clock
        self._next = clock() + EVERY

    def beat(self) -> None:
        """Work goes on. To be called as often as it pleases, and only where something was computed or read."""
        now = self._clock()
        if now >= self._next:
            self._next = now + EVERY
            self._tell(Alive())
