"""`/web/ws`: the whole session API over one WebSocket, a request a frame, a response a text frame.

What arrives while a request runs waits within bounds; past them nothing is read, so that the client is paced by its
own socket. Responses go out one at a time at the client's pace: a generation that gets too far ahead of a client
that does not read is cancelled, and no lane waits for it.
"""

from __future__ import annotations

from collections import deque

import trio
from starlette.types import Receive, Send

from superfluid.daemon.activity import Activity
from superfluid.daemon.use_cases import UseCases
from superfluid.protocol import jsonform, responses
from superfluid.protocol.errors import DecodeError
from superfluid.protocol.requests import Request
from superfluid.protocol.responses import Response
from superfluid.transports.conversation import Conversation
from superfluid.transports.hangup import LOOK, hung_up
from superfluid.transports.http.body import THREADED
from superfluid.transports.web.rpc import encode

MOST_REQUESTS = 32
MOST_BYTES = 64 << 20
"""What may wait: so many requests, and no other once there are so many bytes."""

FAREWELL = 5.0
"""Seconds in which what a client has still sent is read and dropped once it has left."""


class WebSocket:
    """One client, accepted. `run` ends when it leaves."""

    def __init__(
        self, socket: trio.socket.SocketType, receive: Receive, send: Send, cases: UseCases, activity: Activity
    ) -> None:
        self._socket = socket
        self._receive = receive
        self._send_message = send
        self._activity = activity
        self._inbox = Inbox()
        self._left = False
        self._sending = trio.StrictFIFOLock()
        # The whole connection is cancelled when its client leaves, generations included.
        self._conversation = Conversation(cases, activity, self._send, trio.sleep_forever)

    async def run(self) -> None:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._read, nursery.cancel_scope)
                await self._answer(nursery)
        finally:
            self._conversation.close()
            with trio.move_on_after(FAREWELL):
                while not self._left:
                    await self._next()

    async def _read(self, connection: trio.CancelScope) -> None:
        """Take in frames until the client leaves, then end the connection."""
        while (frame := await self._next()) is not None:
            self._inbox.put(frame)
            while self._inbox.full and not hung_up(self._socket, half=True):
                with trio.move_on_after(LOOK):
                    await self._inbox.room()
            if self._inbox.full:
                break
        connection.cancel()

    async def _next(self) -> bytes | None:
        """The next frame; None where the client has left."""
        message = await self._receive()
        if message["type"] != "websocket.receive":
            self._left = True
            return None
        text: str | None = message.get("text")
        data: bytes = message["bytes"] if text is None else text.encode("utf-8", "surrogatepass")
        return data

    async def _answer(self, nursery: trio.Nursery) -> None:
        while True:
            data = await self._inbox.get()
            with self._activity:
                try:
                    request = await _decoded(data)
                except DecodeError as fault:
                    await self._send(responses.Err(f"invalid request frame: {fault}"))
                    continue
                await self._conversation.handle(request, nursery)

    async def _send(self, response: Response) -> None:
        async with self._sending:  # also while it is encoded: what is told later is read later
            text = (await encode(response)).decode()
            await self._send_message({"type": "websocket.send", "text": text})


class Inbox:
    """Frames that wait for their turn. `put` never waits; who puts looks at `full` first."""

    def __init__(self) -> None:
        self._frames: deque[bytes] = deque()
        self._bytes = 0
        self._changed = trio.Event()

    @property
    def full(self) -> bool:
        return len(self._frames) >= MOST_REQUESTS or self._bytes >= MOST_BYTES

    def put(self, frame: bytes) -> None:
        self._frames.append(frame)
        self._bytes += len(frame)
        self._change()

    async def get(self) -> bytes:
        """The frame whose turn it is."""
        while not self._frames:
            await self._changed.wait()
        frame = self._frames.popleft()
        self._bytes -= len(frame)
        self._change()
        return frame

    async def room(self) -> None:
        """Return once it is not full."""
        while self.full:
            await self._changed.wait()

    def _change(self) -> None:
        self._changed.set()
        self._changed = trio.Event()


async def _decoded(data: bytes) -> Request:
    request: Request
    if len(data) < THREADED:
        request = jsonform.loads(Request, data)
    else:
        request = await trio.to_thread.run_sync(jsonform.loads, Request, data)
    return request
