"""HTTP/1.1 on one connection: Hypercorn's protocol, with manners where it has none.

What is no request is answered with an error that says why, and so that its sender gets to read it. A target may name
the host, and a body that waits to be asked for (`Expect: 100-continue`) is asked for by who wants it.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import h11
import trio
from hypercorn.events import Closed, Event, RawData
from hypercorn.protocol.events import Body, EndBody, Response
from hypercorn.protocol.events import Event as StreamEvent
from hypercorn.protocol.h11 import STREAM_ID, H11Protocol
from hypercorn.protocol.http_stream import HTTPStream
from hypercorn.protocol.ws_stream import FrameTooLargeError, WebsocketBuffer, WSStream
from hypercorn.trio.worker_context import EventWrapper
from starlette.responses import Response as Reply
from starlette.types import Scope
from wsproto.events import Message

from superfluid.transports.hangup import LOOK, hung_up
from superfluid.transports.holding import SLOWEST, STALLED, Holding, NoRoom

MOST_HEAD = 64 << 10
"""Bytes of a request line and its headers, together."""

PIECES_PAST_LIMIT = 256
"""Pieces of a WebSocket message over the limit that are read and dropped, so that its sender hears of the limit."""

LINGER_BYTES, LINGER_SECONDS = 1 << 20, 2.0
"""How much is still read of what is no request, and for how long, so that its sender gets to read the answer."""

_ASK = "superfluid_ask_for_body"
_SEEN = 256
_EMPTY = [(b"content-length", b"0"), (b"connection", b"close")]
"""The headers of Hypercorn's own errors, which have no body."""
_FOR_TLS = b"\x16"
_REPEATED = re.compile(r":? *(?:bytearray\(|b['\"]).*", re.DOTALL)
"""Where h11 repeats what it was sent."""

Spelling = Callable[[int, str, str], Reply]
"""An error as the clients of a listener read it: from its status, what it says, and the path, empty if unknown."""


async def ask_for_body(scope: Scope) -> None:
    """Say that the body of a request is wanted, to a client that waits for that. Does nothing the second time."""
    await scope["state"][_ASK]()


async def drop_rest(stream: trio.SocketStream) -> None:
    """End what is sent, and read on a while. Closed at once, a client that still sends would read nothing."""
    with trio.move_on_after(LINGER_SECONDS):
        try:
            await stream.send_eof()
            size = 0
            while size < LINGER_BYTES and (piece := await stream.receive_some()):
                size += len(piece)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # it is gone


class Http11(H11Protocol):
    """HTTP/1.1 and nothing else: Hypercorn's HTTP/2 waits for ever where a client leaves at the wrong moment."""

    def __init__(
        self,
        *arguments: Any,
        stream: trio.SocketStream,
        spell: Spelling,
        messages: Holding,
        reading: trio.CancelScope,
    ) -> None:
        """`messages` counts what is held of a WebSocket's, and `reading` ends where one does not come, and where a
        client leaves that has sent more requests than it has replies."""
        super().__init__(*arguments)
        self.can_read = _Turn(stream.socket, reading)
        self.connection = _Requests(h11.SERVER, self.config.h11_max_incomplete_size)
        self._below = stream
        self._spell = spell
        self._messages = messages
        self._reading = reading
        self._seen = b""
        self._wanted = False
        self._early = False
        self.connection_state[_ASK] = self._ask_for_body

    async def handle(self, event: Event) -> None:
        if isinstance(event, RawData) and self.stream is None and event.data:
            self._seen = (self._seen + event.data)[:_SEEN].lstrip(b"\r\n")
        await super().handle(event)

    async def _maybe_recycle(self) -> None:
        if self._reading.cancel_called:  # there is nobody to serve what came ahead to
            await self._close_stream()
            await self.send(Closed())
        else:
            await super()._maybe_recycle()

    async def _check_protocol(self, event: Any) -> None:
        """Offers to speak HTTP/2 are not taken up, which is what HTTP/1.1 provides for."""

    async def _create_stream(self, request: h11.Request) -> None:
        self._seen, self._wanted = b"", False
        await super()._create_stream(_origin_form(request))
        if not isinstance(self.stream, WSStream):
            if isinstance(self.connection, _Requests):
                self.connection.decline()
            return
        self.stream.buffer = _Bounded(self.config.websocket_max_message_size, self._messages, self._reading)
        if self.stream.closed:  # its handshake was none; Hypercorn would leave the connection as it is
            await drop_rest(self._below)
            await self.send(Closed())

    # --- bodies that wait ---------------------------------------------------------------------------------------

    async def _send_h11_event(self, event: Any) -> None:
        if isinstance(event, h11.InformationalResponse) and event.status_code == 100 and not self._wanted:
            return  # a request that is refused by its headers is refused before its body is sent
        await super()._send_h11_event(event)

    async def _ask_for_body(self) -> None:
        self._wanted = True
        if self.connection.they_are_waiting_for_100_continue:
            await super()._send_h11_event(h11.InformationalResponse(status_code=100, headers=[]))

    # --- errors of Hypercorn's own ------------------------------------------------------------------------------

    async def _send_error_response(self, status_code: int) -> None:
        """An answer to what is no request, or to a body that is none; the connection is closed after it."""
        reply = self._error(status_code, _reason(status_code, sys.exception(), self._seen))
        await self._send_h11_event(h11.Response(status_code=status_code, headers=_headers(reply)))
        await self._send_h11_event(h11.Data(data=bytes(reply.body)))
        await self._send_h11_event(h11.EndOfMessage())
        await drop_rest(self._below)

    async def stream_send(self, event: StreamEvent) -> None:
        if isinstance(event, EndBody) and self._early:
            await super().stream_send(event)
            await drop_rest(self._below)
            await self.send(Closed())
            return
        if not (isinstance(event, Response) and event.status_code >= 400 and event.headers == _EMPTY):
            await super().stream_send(event)
            return
        why = _HANDSHAKE if isinstance(self.stream, WSStream) else "the server failed on this request"
        reply = self._error(event.status_code, why)
        if event.status_code == 400 and isinstance(self.stream, WSStream) and self.stream.app_put is not None:
            # Data before the handshake was answered: Hypercorn would tell the application nothing.
            self._early = self.stream.closed = True
            await self.stream.app_put({"type": "websocket.disconnect", "code": 1006})
        await super().stream_send(Response(STREAM_ID, headers=_headers(reply), status_code=event.status_code))
        await super().stream_send(Body(STREAM_ID, data=bytes(reply.body)))

    def _error(self, status: int, why: str) -> Reply:
        if isinstance(self.stream, HTTPStream | WSStream):
            path = self.stream.scope["path"]
        else:
            target = self._seen.split(b"\r\n", 1)[0].split(b" ")[1:2]
            path = target[0].partition(b"?")[0].decode("ascii", "replace") if target else ""
        return self._spell(status, why, path)


_HANDSHAKE = "this is no WebSocket handshake: it wants HTTP/1.1, Sec-WebSocket-Version: 13 and a Sec-WebSocket-Key"


def _headers(reply: Reply) -> list[tuple[bytes, bytes]]:
    return [*reply.raw_headers, (b"connection", b"close")]


def _reason(status: int, fault: BaseException | None, seen: bytes) -> str:
    """What was wrong, without what was sent."""
    if status == 431:
        return f"the request line and the headers have more than {MOST_HEAD >> 10} KiB"
    if status == 501:
        return "transfer-encoding: only chunked is known here"
    if seen.startswith(_FOR_TLS):
        return "this is HTTP without TLS: use http:// and not https://"
    said = _REPEATED.sub("", str(fault)) if fault is not None else ""
    return f"this is no HTTP/1.1: {said}" if said else "this is no HTTP/1.1"


def _origin_form(request: h11.Request) -> h11.Request:
    """A request whose target is a whole URL, as proxies send them, with the host from there (RFC 9112, 3.2.2)."""
    if not re.match(rb"https?://", request.target, re.IGNORECASE):
        return request
    try:
        parts = urlsplit(request.target.decode("ascii"))
    except ValueError:
        return request
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return h11.Request(
        method=request.method,
        target=target,
        headers=[(b"host", parts.netloc.encode()), *(field for field in request.headers if field[0] != b"host")],
        http_version=request.http_version,
    )


class _Requests(h11.Connection):
    """h11's view of a connection, lenient with what some clients send: line ends between requests (RFC 9112, 2.2),
    and something after a request that said it was the last."""

    def __init__(self, role: Any, most: int) -> None:
        super().__init__(role, most)
        self._most = most

    def receive_data(self, data: bytes) -> None:
        if data and self.their_state is h11.MUST_CLOSE:
            return
        kept = data.lstrip(b"\r\n") if self.their_state is h11.IDLE and not self.trailing_data[0] else data
        if kept or not data:  # no data at all is the end
            super().receive_data(kept)

    def decline(self) -> None:
        """Take up no offer to switch protocols. While one stands, h11 reads nothing after the request, not even that
        the client has left."""
        self._cstate.pending_switch_proposals.clear()

    def next_event(self) -> Any:
        if self.their_state is h11.DONE and (rest := self.trailing_data[0]) and not rest.strip(b"\r\n"):
            self._receive_buffer.maybe_extract_at_most(len(rest))
        return h11.NEED_DATA if self.their_state is h11.MUST_CLOSE else super().next_event()

    def start_next_cycle(self) -> None:
        super().start_next_cycle()
        rest, ended = self.trailing_data
        if rest.startswith((b"\r", b"\n")):
            self.__init__(self.our_role, self._most)  # type: ignore[misc]
            if rest := rest.lstrip(b"\r\n"):
                self.receive_data(rest)
            if ended:
                self.receive_data(b"")


class _Turn(EventWrapper):
    """When a request that came ahead of the reply before it can be read. Nothing is read until then, not even that
    the client has left: so that is looked for, and ends the reading."""

    def __init__(self, socket: trio.socket.SocketType, reading: trio.CancelScope) -> None:
        super().__init__()
        self._socket = socket
        self._reading = reading

    async def wait(self) -> None:
        while not self.is_set():
            with trio.move_on_after(LOOK) as waiting:
                await super().wait()
            if waiting.cancelled_caught and hung_up(self._socket, half=True):
                self._reading.cancel()
                await trio.lowlevel.checkpoint()


class _Bounded(WebsocketBuffer):
    """A WebSocket message as it comes, counted among the bodies that are held, and given as long to come as they are.
    Hypercorn's own goes on growing past the limit, for as long as pieces come."""

    def __init__(self, max_length: int, holding: Holding, reading: trio.CancelScope) -> None:
        super().__init__(max_length)
        self._reading = reading
        self._began = 0.0
        self._holding = holding
        self._dropped = 0

    def extend(self, event: Message[Any]) -> None:
        """Raises FrameTooLargeError, which is told to the client, and BrokenPipeError where it just goes on."""
        try:
            if not self._dropped:
                now = trio.current_time()
                if self.value is None:
                    self._began = now
                super().extend(event)
                self._reading.deadline = STALLED + min(now, self._began + self.length / SLOWEST)
                self._holding.resize(self.length)
                return
        except (FrameTooLargeError, NoRoom):
            self.clear()
        self._dropped += 1
        if self._dropped > PIECES_PAST_LIMIT:
            raise BrokenPipeError
        raise FrameTooLargeError

    def to_message(self) -> Any:
        self._reading.deadline = math.inf  # it is there; how long it waits to be taken is not up to the client
        return super().to_message()

    def clear(self) -> None:
        super().clear()
        self._reading.deadline = math.inf
        self._holding.resize(0)
