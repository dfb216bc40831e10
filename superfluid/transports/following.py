"""Feed subscriptions of one connection: what happens to a session's data and flash queries, as it happens."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

import trio

from superfluid.daemon.activity import Activity
from superfluid.daemon.use_cases import UseCases
from superfluid.protocol import responses
from superfluid.protocol.feed_responses import FeedNews
from superfluid.protocol.refusals import Refusal
from superfluid.protocol.responses import Response

FIRST_ID = 1 << 32
"""Ids of these subscriptions on their connection; those of the session's own are lower."""


class Following:
    """Delivers with `send` until a subscription ends, by itself or by `stop`; SubEnded is last."""

    def __init__(self, cases: UseCases, activity: Activity, send: Callable[[Response], Awaitable[None]]) -> None:
        self._cases = cases
        self._activity = activity
        self._send = send
        self._waiting: dict[int, trio.CancelScope] = {}
        """of each subscription, what waits for its next event"""
        self._stopped: set[int] = set()
        self._next_id = FIRST_ID

    async def start(self, session: int, nursery: trio.Nursery) -> None:
        """Answer with Subscribed, and deliver in `nursery` from then on. Raises Refusal."""
        news = self._cases.feeds.subscribe(session)
        sub, self._next_id = self._next_id, self._next_id + 1
        self._waiting[sub] = trio.CancelScope()
        await self._send(responses.Subscribed(sub))
        nursery.start_soon(self._deliver, sub, session, news)

    def stop(self, sub: int) -> bool:
        """End a subscription; False where there is none of that id."""
        if sub not in self._waiting:
            return False
        self._stopped.add(sub)
        self._waiting[sub].cancel()
        return True

    async def _deliver(self, sub: int, session: int, news: AsyncGenerator[FeedNews, None]) -> None:
        with self._activity:
            async with aclosing(news):
                while (event := await self._next(sub, news)) is not None:
                    await self._send(responses.FeedEvent(sub, event))
            reason = "unsubscribed" if sub in self._stopped else self._reason(session)
            del self._waiting[sub]
            self._stopped.discard(sub)
            await self._send(responses.SubEnded(sub, reason))

    async def _next(self, sub: int, news: AsyncGenerator[FeedNews, None]) -> FeedNews | None:
        """None once it is over. Stopping cancels this wait alone: a frame that is half sent has to be sent whole."""
        if sub not in self._stopped:
            with trio.CancelScope() as self._waiting[sub]:
                return await anext(news, None)
        return None

    def _reason(self, session: int) -> str:
        """Why no more comes of a session."""
        if self._cases.generating.closing:
            return "publisher closed"
        try:
            self._cases.feeds.resolve(str(session))
        except Refusal:
            return "purged"
        return "lagged"
