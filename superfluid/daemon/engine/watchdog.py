"""Notices a worker that hangs without dying: a driver that never returns, a deadlock, a process that was stopped.

No measured speed says how long a decode may take: the first one has none, and one that has to read its weights from
disk again takes a thousand times what the last one took. So the worker itself tells that it goes on. The library asks
it between the operations of a decode on a processor whether to give up, and a load tells its progress; each is a sign
of life (`ticks.Alive`), as is every other frame. What cannot give signs is one decode on a GPU, one operation on a
processor, and one sequence that moves from a tier to another: seconds, on any machine that is of use.

`PATIENCE` is far beyond that. Until a first tick has ended it is ten times as long, since a GPU's driver may have to
compile everything first, which it does once on a machine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import trio

PATIENCE = 300.0
"""Seconds without a sign of life, while one is owed, after which a worker is taken to hang."""

FIRST = 10
"""How many times as long it may be until the first tick has ended."""

_LOOKS = 30


class Watched(Protocol):
    """A worker, of which only this matters here."""

    @property
    def heard(self) -> int:
        """How many frames have come from it."""

    async def condemn(self, reason: str) -> None:
        """It is of no use any more."""


class Watchdog:
    """Watches one worker after another, with so much patience, in seconds."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._proved = False

    def tick_ended(self) -> None:
        """A tick has ended: from now on there is no first time to wait for."""
        self._proved = True

    async def watch(self, worker: Watched, owes: Callable[[], bool]) -> None:
        """Return once the worker was silent for too long, all of which it owed something; it is condemned then.

        Silence is counted in short steps, none for more than it should take: a daemon that was stopped, or a machine
        that slept, first hears what was said meanwhile.
        """
        silent, heard = 0, worker.heard
        while silent <= _LOOKS:
            await trio.sleep(self._seconds / _LOOKS)
            silent = silent + 1 if owes() and worker.heard == heard else 0
            heard = worker.heard
        await worker.condemn(f"the engine worker hung: no sign of life for {self._seconds:g} s, so it was killed")

    @property
    def _seconds(self) -> float:
        return self._patience if self._proved else self._patience * FIRST
