"""The HTTP listener, as a transport of the daemon."""

from __future__ import annotations

import trio

from superfluid.daemon.activity import Activity
from superfluid.daemon.config import HttpConfig, StartError
from superfluid.daemon.use_cases import UseCases
from superfluid.transports.holding import HeldBodies
from superfluid.transports.hosts import is_loopback
from superfluid.transports.http import feed_socket
from superfluid.transports.http.app import application
from superfluid.transports.http.errors import spelled
from superfluid.transports.listening import Listener, settings


class HttpListener:
    """The transport at one TCP address; port 0 is any that is free."""

    kind = "http"

    def __init__(self, config: HttpConfig, bodies: HeldBodies) -> None:
        self._config = config
        self._bodies = bodies
        hypercorn = settings()
        hypercorn.websocket_max_message_size = feed_socket.MOST_BYTES
        hypercorn.websocket_ping_interval = feed_socket.PING_SECONDS
        hypercorn.max_app_queue_size = 1  # what waits, waits where its size is known
        self._listener = Listener(config.host, config.port, hypercorn, spelled, bodies)

    @property
    def url(self) -> str | None:
        return self._listener.url

    @property
    def open(self) -> bool:
        return self._config.api_key is None and not is_loopback(self._listener.address[0])

    def bind(self) -> None:
        """Raises StartError where the address is taken or not to be had."""
        try:
            self._listener.bind()
        except OSError as fault:
            raise StartError(
                f"http {self._config.host}:{self._config.port}: {fault.strerror or fault}; "
                "name another address with --http, or none with --no-http"
            ) from fault

    async def serve(self, cases: UseCases, activity: Activity, clients: trio.Nursery) -> None:
        """Accept connections until cancelled; they live in `clients`."""
        await self._listener.serve(application(cases, self._config, activity, self._bodies), clients)

    def close(self) -> None:
        self._listener.close()
