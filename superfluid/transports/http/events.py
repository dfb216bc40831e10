"""GET /v1/sessions/{id}/events: what happens to a session, as server-sent events (spec: streaming-facts, 6)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

import trio
from starlette.types import Receive, Scope, Send

from superfluid.daemon.use_cases import UseCases
from superfluid.protocol.feed_responses import FeedNews
from superfluid.transports.http import objects
from superfluid.transports.http.frames import HEADERS, frame, say
from superfluid.transports.http.leaving import cancel_when_gone
from superfluid.transports.http.naming import found

HEARTBEAT = b": heartbeat\n\n"
SILENCE = 15.0
"""Seconds without an event after which a heartbeat goes out."""


class Events:
    """The ASGI endpoint. A stream ends with its session and the daemon, and where its reader lags too far behind."""

    def __init__(self, cases: UseCases) -> None:
        self._cases = cases

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Raises ApiError 404 before the first byte."""
        target = found(self._cases, scope["path_params"]["session"])
        if scope["method"] == "HEAD":
            await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
            await say(send, b"", last=True)
            return
        over = False
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cancel_when_gone, receive, nursery.cancel_scope)
            # Events are taken one at a time: what a slow reader has not taken waits where it is counted.
            passing, events = trio.open_memory_channel[FeedNews](0)
            nursery.start_soon(_pass_on, self._cases.feeds.subscribe(target.session), passing)
            await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
            async for data in frames(events):
                await say(send, data)
            over = True
            nursery.cancel_scope.cancel()
        if over:  # not said in there: it may close the connection, and that is no leaving
            await say(send, b"", last=True)


async def _pass_on(events: AsyncGenerator[FeedNews, None], passing: trio.MemorySendChannel[FeedNews]) -> None:
    async with passing, aclosing(events):
        async for event in events:
            await passing.send(event)


async def frames(events: trio.MemoryReceiveChannel[FeedNews]) -> AsyncIterator[bytes]:
    """Each event as a frame, and a comment wherever none came for long."""
    while True:
        with trio.move_on_after(SILENCE) as waiting:
            try:
                event = await events.receive()
            except trio.EndOfChannel:
                return
        if waiting.cancelled_caught:
            yield HEARTBEAT
        else:
            name, data = objects.event(event)
            yield frame(data, name)
