"""`/v1/sessions/{id}/ws`: pushes in, and what happens to the session out (spec: streaming-facts, 6).

Every message is one JSON text frame `{"type", "data"}`. A push is acknowledged before any event that comes of it:
both go through one queue, and nothing is ingested before the acknowledgement stands in it. The queue is bounded: no
message is read and no event taken while it is full, so that a client is paced by what it reads, and one that lags too
far behind the events is let go.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import trio
from starlette.types import Message, Receive, Send

from superfluid.daemon.use_cases import UseCases
from superfluid.protocol.feed_responses import FeedNews
from superfluid.protocol.refusals import Refusal
from superfluid.sessions.senders import Numbered
from superfluid.transports.http import body, objects
from superfluid.transports.http.errors import ApiError
from superfluid.transports.http.naming import Target
from superfluid.transports.http.pushing import entries, numbered

MOST_BYTES = 16 << 20
"""Of a message."""

PING_SECONDS = 15.0
"""Between two pings; who does not take them is cut off after `listening.UNREAD_SECONDS`."""

MOST_WAITING = 64
"""Messages that wait to be read by the client."""

FAREWELL = 5.0
"""Seconds in which what a client still sends is read and dropped once the socket is over."""

TYPES = ("push", "ping", "close")


class FeedSocket:
    """One client, accepted. `run` ends when it leaves or asks to, when its session ends, and when it lags."""

    def __init__(self, receive: Receive, send: Send, cases: UseCases, target: Target) -> None:
        self._receive = receive
        self._send = send
        self._cases = cases
        self._target = target
        self._left = False
        self._over = False
        """whether nothing more will be said than what waits"""
        self._waiting: deque[str] = deque()
        self._changed = trio.Event()

    async def run(self) -> None:
        try:
            events = self._cases.feeds.subscribe(self._target.session)
        except Refusal:  # erased since it was found
            await self._close()
            return
        async with trio.open_nursery() as writing:
            writing.start_soon(self._write)
            async with trio.open_nursery() as talking:
                talking.start_soon(self._follow, events, talking.cancel_scope)
                await self._read()
                talking.cancel_scope.cancel()
            self._over = True
            self._change()
            if self._left:
                writing.cancel_scope.cancel()
        if self._left:
            return
        await self._close()

    async def _close(self) -> None:
        await self._send({"type": "websocket.close"})
        with trio.move_on_after(FAREWELL):
            while not self._left:
                await self._next()

    async def _next(self) -> Message:
        message = await self._receive()
        self._left = message["type"] != "websocket.receive"
        return message

    async def _read(self) -> None:
        """Do what the client says until it leaves or wants to end."""
        while True:
            await self._room()
            message = await self._next()
            if self._left:
                return
            try:
                if not await self._heed(message):
                    return
            except ApiError as fault:
                self._put("error", {"message": str(fault), "code": 400})

    async def _heed(self, message: Message) -> bool:
        """Whether it goes on after this message. Raises ApiError where the message makes no sense."""
        text: str | None = message.get("text")
        if text is None:
            raise ApiError("a message is a text frame")
        data = text.encode("utf-8", "surrogatepass")
        fields = body.parse(data) if len(data) < body.THREADED else await trio.to_thread.run_sync(body.parse, data)
        kind = fields.text("type")
        match kind:
            case "close":
                return False
            case "ping":
                self._put("pong", {})
            case "push":
                self._push(await entries(fields), numbered(fields))
            case _:
                raise ApiError(f"type: expected one of {', '.join(TYPES)}")
        return True

    def _push(self, data: tuple[str, ...], numbered: Numbered | None) -> None:
        try:
            pushed = self._cases.feeds.push(self._target.session, data, numbered)
        except Refusal as refusal:
            raise self._target.refused(refusal, "data") from None
        acknowledgement = objects.push(pushed)
        del acknowledgement["pending_bytes"]
        self._put("push_ack", acknowledgement)

    async def _follow(self, events: AsyncGenerator[FeedNews, None], talking: trio.CancelScope) -> None:
        """Tell what happens, and end the socket where no more is told."""
        async with aclosing(events):
            async for event in events:
                self._put(*objects.event(event))
                await self._room()
        talking.cancel()

    # --- what waits for the client --------------------------------------------------------------------------------

    def _put(self, kind: str, data: dict[str, Any]) -> None:
        self._waiting.append(json.dumps({"type": kind, "data": data}, ensure_ascii=True, separators=(",", ":")))
        self._change()

    async def _room(self) -> None:
        while len(self._waiting) >= MOST_WAITING:
            await self._changed.wait()

    async def _write(self) -> None:
        while self._waiting or not self._over:
            if not self._waiting:
                await self._changed.wait()
                continue
            text = self._waiting.popleft()
            self._change()
            await self._send({"type": "websocket.send", "text": text})

    def _change(self) -> None:
        self._changed.set()
        self._changed = trio.Event()
