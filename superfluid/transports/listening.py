"""Listening on TCP: our own sockets and accept loop, Hypercorn's protocol on each connection.

Hypercorn's own accept loop would let a connection that fails end all others and the daemon with them, and its sends
cannot be cancelled. Here each connection ends by itself, and at the daemon's end its socket is closed under it.
"""

from __future__ import annotations

import logging
import socket

import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.events import Closed
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState
from hypercorn.utils import parse_socket_addr
from starlette.types import ASGIApp

from superfluid.transports.accepting import PatientListener
from superfluid.transports.holding import HeldBodies, Holding
from superfluid.transports.http11 import MOST_HEAD, Http11, Spelling
from superfluid.transports.tasks import Tasks

_LOG = logging.getLogger("superfluid.http")

UNREAD_SECONDS = 60
"""How long a client may leave what was sent to it unread before its connection breaks (TCP_USER_TIMEOUT)."""

IDLE_SECONDS = 75
"""How long a connection without a request is kept."""

BACKLOG = 512


class Listener:
    """One TCP address that speaks HTTP/1.1; port 0 is any that is free. `spell` spells the errors of what is none."""

    def __init__(self, host: str, port: int, settings: Config, spell: Spelling, bodies: HeldBodies) -> None:
        self._settings = settings
        self._spell = spell
        self._bodies = bodies
        self._listener: socket.socket | None = None
        self.address: tuple[str, int] = (host, port)

    @property
    def url(self) -> str:
        host, port = self.address
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def bind(self) -> None:
        """Raises OSError where the address is taken or not to be had."""
        self._listener = _listen(*self.address)
        self.address = self._listener.getsockname()[:2]

    async def serve(self, application: ASGIApp, clients: trio.Nursery) -> None:
        """Accept connections until cancelled; they live in `clients`. An application finds its socket in its scope's
        state, as `socket`."""
        assert self._listener is not None, "bind comes first"
        app, context = ASGIWrapper(application), WorkerContext(None)  # type: ignore[arg-type]

        async def handle(stream: trio.SocketStream) -> None:
            state = ConnectionState({"socket": stream.socket})
            with Holding(self._bodies) as messages:
                await _serve_client(
                    stream, _Connection(app, self._settings, context, state, stream, self._spell, messages)
                )

        accepting = PatientListener(self._listener)
        try:
            await trio.serve_listeners(handle, [accepting], handler_nursery=clients)
        finally:
            await context.terminated.set()  # idle connections close, the others after their reply

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()


def settings() -> Config:
    """Hypercorn's, for what both listeners have in common."""
    settings = Config()
    settings.errorlog = _LOG
    settings.accesslog = None
    settings.include_server_header = False
    settings.h11_max_incomplete_size = MOST_HEAD
    settings.keep_alive_timeout = IDLE_SECONDS
    settings.keep_alive_max_requests = 1 << 31
    return settings


def _listen(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Accepted connections inherit these.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNREAD_SECONDS * 1000)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener


class _Connection(TCPServer):
    """Hypercorn's connection without TLS and HTTP/2. It ends with its client, not `IDLE_SECONDS` later."""

    def __init__(
        self,
        app: ASGIWrapper,
        settings: Config,
        context: WorkerContext,
        state: ConnectionState,
        stream: trio.SocketStream,
        spell: Spelling,
        messages: Holding,
    ) -> None:
        super().__init__(app, settings, context, state, stream)  # type: ignore[arg-type]
        self._plain = stream
        self._messages = messages
        self._spell = spell

    async def run(self) -> None:
        try:
            peer, here = self.stream.socket.getpeername(), self.stream.socket.getsockname()
            family = self.stream.socket.family
            reading = trio.CancelScope()
            async with Tasks() as tasks:
                self._task_group = tasks
                self.protocol = Http11(  # type: ignore[assignment]
                    self.app,
                    self.config,
                    self.context,
                    tasks,
                    ConnectionState(self.state),
                    False,
                    parse_socket_addr(family, peer),
                    parse_socket_addr(family, here),
                    self.protocol_send,
                    stream=self._plain,
                    spell=self._spell,
                    messages=self._messages,
                    reading=reading,
                )
                await self.idle_task.restart(tasks, self._idle_timeout)
                with reading:
                    await self._read_data()
                if reading.cancelled_caught:
                    await self.protocol.handle(Closed())
                await self.idle_task.stop()
        except OSError:
            pass  # the client is gone
        finally:
            await self._close()


async def _serve_client(stream: trio.SocketStream, connection: TCPServer) -> None:
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_close_when_cancelled, stream)
            await connection.run()
            nursery.cancel_scope.cancel()
    except* Exception as faults:
        # A handler that raises would end the daemon; this client loses its connection instead.
        _LOG.warning("a connection failed: %s", ", ".join(type(fault).__name__ for fault in faults.exceptions))


async def _close_when_cancelled(stream: trio.SocketStream) -> None:
    """Hypercorn shields its sends: a client that does not read would hold the daemon's end up."""
    try:
        await trio.sleep_forever()
    finally:
        stream.socket.close()
