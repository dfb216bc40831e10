"""One request and its reply over HTTP, ended in a way that lets the client read the reply."""

from __future__ import annotations

import trio
from starlette.types import Message, Receive, Send

LINGER_BYTES, LINGER_SECONDS, PAUSE_SECONDS = 256 << 20, 10.0, 0.5
"""How much of a body that nobody wants is still read, so that its sender gets to read the answer: so many bytes, for
so long, and no longer than the sender pauses."""


class Exchange:
    """One request and its reply. The reply ends only after the body was read, or enough of it.

    Otherwise the connection would be closed on a client that is still sending, which then reads nothing.
    """

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._read = False

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] != "http.request" or not message.get("more_body", False):
            self._read = True
        return message

    async def send(self, message: Message) -> None:
        last = message["type"] == "http.response.body" and not message.get("more_body", False)
        if not last or self._read:
            await self._send(message)
            return
        await self._send({**message, "more_body": True})
        await self._linger()
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _linger(self) -> None:
        size, end = 0, trio.current_time() + LINGER_SECONDS
        while not self._read and size < LINGER_BYTES:
            with trio.move_on_at(min(end, trio.current_time() + PAUSE_SECONDS)) as waiting:
                size += len((await self.receive()).get("body", b""))
            if waiting.cancelled_caught:
                return
