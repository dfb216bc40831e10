"""What the worker is told beside ticks: to forget, hold, shift, retire, limit and park KV."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import trio

from superfluid.daemon.engine.mirror import Mirror
from superfluid.daemon.engine.worker import Worker
from superfluid.protocol.ticks import Forget, Hold, Limit, Load, Park, Retire, Shift

_Order = Forget | Hold | Limit | Park | Shift | Retire


class Orders:
    """Orders wait for the end of the tick under way, which `wake` asks for. Without a worker nothing is ordered: the
    next one holds nothing yet, and is told of holds and limits when it comes."""

    def __init__(self, load: Load, kv: Mirror, wake: Callable[[], None]) -> None:
        self._load = load
        self._kv = kv
        self._wake = wake
        self._served = False
        self._deaths = 0
        """of workers"""
        self._queue: list[_Order] = []
        self._held: Hold | None = None
        self._limit: Limit | None = None
        self._tickets: dict[int, trio.Event] = {}
        self._parked: trio.Event | None = None

    # --- what the use cases order ---------------------------------------------------------------------------------

    async def forget(self, sessions: Sequence[int]) -> None:
        """Return once the worker holds nothing of these sessions any more; at once where there is no worker."""
        if self._served:
            await self._done(tuple(sessions), None)
            self._kv.forget(sessions)

    async def forget_strays(self, session: int, stream: bytes) -> bool:
        """Return once the worker holds nothing of the session but of the packed `stream`; false if none says so."""
        deaths = self._deaths
        if not self._served:
            return False
        await self._done((session,), stream)
        return self._deaths == deaths

    async def _done(self, sessions: tuple[int, ...], stream: bytes | None) -> None:
        ticket = max(self._tickets, default=0) + 1
        done = self._tickets[ticket] = trio.Event()
        self._give(Forget(ticket, sessions, stream))
        await done.wait()

    def forget_soon(self, sessions: Sequence[int]) -> None:
        """As `forget`, and nobody waits for it."""
        self._give(Forget(0, tuple(sessions)))

    def hold(self, sessions: Sequence[int]) -> None:
        """Keep the KV of these sessions before that of all others; replaces what was held before."""
        if self._held or sessions:
            self._held = Hold(tuple(sessions))
            self._give(self._held)

    def shift(self, session: int, start: int, count: int) -> None:
        """Take `count` tokens, from index `start` on, out of the session's idle sequence, where the worker can: its
        stream has lost them, and what is behind them moves down. Else what is missing is prefilled."""
        self._give(Shift(session, start, count))

    def retire(self, sessions: Sequence[int], seconds: float) -> None:
        """Keep the KV of these sessions on disk at most, which may take so long to write."""
        self._give(Retire(tuple(sessions), int(seconds * 1000)))

    @property
    def host_bytes(self) -> int:
        """How much KV may lie in host memory by the settings."""
        return self._load.host_bytes

    def limit(self, host_bytes: int | None) -> None:
        """Let so much KV lie in host memory; None is what the settings say."""
        limit = Limit(self.host_bytes if host_bytes is None else host_bytes)
        self._limit = None if host_bytes is None else limit
        self._give(limit)

    async def park(self, seconds: float) -> None:
        """Have what KV is held written to disk, as far as the time goes. For an engine room that has come to rest."""
        if not self._served or not self._load.park or seconds <= 0:
            return
        self._parked = trio.Event()
        self._give(Park(int(seconds * 1000)))
        await self._parked.wait()

    def _give(self, order: _Order) -> None:
        if self._served:
            self._queue.append(order)
            self._wake()

    # --- what becomes of them -------------------------------------------------------------------------------------

    @property
    def owed(self) -> bool:
        """Whether somebody waits until the worker has done one. A `park` sets its own end."""
        return bool(self._tickets)

    @property
    def waiting(self) -> bool:
        """Whether there are some that were not sent."""
        return bool(self._queue)

    async def send(self, worker: Worker) -> None:
        """Send what waits, and what comes meanwhile. Raises WorkerDied."""
        while self._queue:
            await worker.send(self._queue.pop(0))

    def forgotten(self, ticket: int) -> None:
        if (done := self._tickets.pop(ticket, None)) is not None:
            done.set()

    def parked(self) -> None:
        if self._parked is not None:
            self._parked.set()

    def worker_came(self) -> None:
        self._served = True
        self._queue += [order for order in (self._held, self._limit) if order is not None]

    def worker_died(self) -> None:
        """What died holds nothing any more: whoever waits for that need not wait."""
        self._deaths += 1
        self._served = False
        self._queue.clear()
        self.parked()
        for ticket in tuple(self._tickets):
            self.forgotten(ticket)
