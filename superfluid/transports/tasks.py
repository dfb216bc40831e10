"""The tasks of one connection, and what waits for each to be received.

Hypercorn's own queue holds the word that a client has left back while it is full. A task that no longer reads would
wait for itself there, and its connection would stay for ever.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Any

import trio
from hypercorn.config import Config
from hypercorn.trio.task_group import TaskGroup
from hypercorn.typing import AppWrapper, ASGIReceiveEvent, ASGISendEvent, Scope

_LAST = ("http.disconnect", "websocket.disconnect")


class Tasks(TaskGroup):
    """Hypercorn's, with a queue in which the last word never waits."""

    async def spawn_app(
        self,
        app: AppWrapper,
        config: Config,
        scope: Scope,
        send: Callable[[ASGISendEvent | None], Awaitable[None]],
    ) -> Callable[[ASGIReceiveEvent], Awaitable[None]]:
        waiting = _Waiting(config.max_app_queue_size)

        async def receiving(scope: Any, receive: Any, send: Any, sync_spawn: Any, call_soon: Any) -> None:
            await app(scope, waiting.receive, send, sync_spawn, call_soon)

        await super().spawn_app(receiving, config, scope, send)
        return waiting.put


class _Waiting:
    """At most `most` events, and the last, behind which nothing comes."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._over = False
        self._room = trio.Event()
        self._putting, self._taking = trio.open_memory_channel[ASGIReceiveEvent](math.inf)

    async def put(self, event: ASGIReceiveEvent) -> None:
        """Wait for room. What still waits for it when the last event comes is dropped, as nobody may take it."""
        last = event["type"] in _LAST
        while not last and not self._over and self._putting.statistics().current_buffer_used >= self._most:
            await self._room.wait()
        if not self._over:
            self._putting.send_nowait(event)
        if last:
            self._over = True
            self._wake()

    async def receive(self) -> ASGIReceiveEvent:
        event = await self._taking.receive()
        self._wake()
        return event

    def _wake(self) -> None:
        self._room.set()
        self._room = trio.Event()
