"""Memory pressure: while the machine runs short, KV in host memory gives way."""

from __future__ import annotations

from collections.abc import Callable

import trio

from superfluid.daemon.engine.room import EngineRoom
from superfluid.memory import memory

LOOK_SECONDS = 2.0


def memory_in_use() -> float:
    """Hundredths of the memory that cannot be had without swapping, or without going past a limit."""
    return memory().used_percent


def budget(now: int, full: int, used: float, high: float, low: float) -> int:
    """The bytes of KV that may lie in host memory next, given those that may `now` and at most.

    Above `high` half of it, again and again; below `low` it doubles back, in steps so that it does not swing.
    """
    if used >= high:
        return now // 2
    if used <= low and now < full:
        return min(full, max(now * 2, full // 16))
    return now


class Pressure:
    """Looks now and then, and tells the worker what it may keep."""

    def __init__(
        self,
        room: EngineRoom,
        high: float,
        low: float,
        used: Callable[[], float],
        notice: Callable[[str], None],
    ) -> None:
        self._room = room
        self._high = high
        self._low = low
        self._used = used
        self._notice = notice

    async def run(self) -> None:
        full = now = self._room.orders.host_bytes
        while True:
            await trio.sleep(LOOK_SECONDS)
            used = self._used()
            after = budget(now, full, used, self._high, self._low)
            if after == now:
                continue
            if now == full:
                self._notice(f"memory is {used:.0f} % in use: KV in host memory gives way")
            elif after == full:
                self._notice("memory is free again: KV may lie in host memory as before")
            self._room.metrics.pressure_events += after < now
            now = after
            self._room.orders.limit(None if now == full else now)
