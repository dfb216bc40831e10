"""The browser transport, as a transport of the daemon."""

from __future__ import annotations

from pathlib import Path

import trio

from superfluid.daemon.activity import Activity
from superfluid.daemon.config import StartError, WebConfig
from superfluid.daemon.use_cases import UseCases
from superfluid.protocol.frames import MAX_FRAME
from superfluid.transports.holding import HeldBodies
from superfluid.transports.hosts import is_loopback
from superfluid.transports.listening import Listener, settings
from superfluid.transports.web.app import WebApp
from superfluid.transports.web.guard import Guard
from superfluid.transports.web.refusals import spelled
from superfluid.transports.web.token import mint

PING_SECONDS = 20.0
"""Between two pings of a WebSocket; who does not take them is cut off after `listening.UNREAD_SECONDS`."""


class WebListener:
    """The transport at one loopback address; the token is written before anybody can connect."""

    kind = "web"
    open = False

    def __init__(self, config: WebConfig, token: Path, bodies: HeldBodies) -> None:
        self._config = config
        self._bodies = bodies
        self._path = token
        self._token = ""
        hypercorn = settings()
        hypercorn.websocket_max_message_size = MAX_FRAME
        hypercorn.websocket_ping_interval = PING_SECONDS
        hypercorn.max_app_queue_size = 1  # what waits, waits where its size is known
        self._listener = Listener(config.host, config.port, hypercorn, spelled, bodies)

    @property
    def url(self) -> str | None:
        return self._listener.url

    def bind(self) -> None:
        """Raises StartError where the address is taken or not loopback, or the token cannot be written."""
        place = f"web {self._config.host}:{self._config.port}"
        if not is_loopback(self._config.host):
            raise StartError(f"{place}: the browser transport is for this machine only; name 127.0.0.1 with --web", 2)
        try:
            self._token = mint(self._path)
        except OSError as fault:
            raise StartError(f"{self._path}: {fault.strerror or fault}") from fault
        try:
            self._listener.bind()
        except OSError as fault:
            raise StartError(f"{place}: {fault.strerror or fault}; name another address with --web") from fault

    async def serve(self, cases: UseCases, activity: Activity, clients: trio.Nursery) -> None:
        """Accept connections until cancelled; they live in `clients`."""
        guard = Guard(self._token, self._config.origins)
        await self._listener.serve(WebApp(cases, guard, activity, self._bodies), clients)

    def close(self) -> None:
        self._listener.close()
