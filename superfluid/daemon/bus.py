"""The event bus: committed events and provisional text, from where they arise to whoever follows a session.

Nobody who publishes ever waits. A subscription holds a bounded queue; one that runs full ends with `lagged`, after
what it already holds (spec: wire-facts, 8.12).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import trio

from superfluid.protocol.records import Event

QUEUE = 1024
"""Messages a subscription may lag behind, committed and provisional together."""


@dataclass(frozen=True, slots=True)
class Provisional:
    """Text ahead of its commit."""

    channel: int
    text: str


@dataclass(frozen=True, slots=True)
class Ended:
    """The last message of a subscription: unsubscribed, lagged, publisher closed or purged."""

    reason: str


BusMessage = Event | Provisional | Ended


class Subscription:
    """One follower of one session. `receive` gives messages in order and `Ended` last."""

    def __init__(self, id: int, session: int, provisional: bool) -> None:
        self.id = id
        self.session = session
        self.provisional = provisional
        self._queue: deque[Event | Provisional] = deque()
        self._ended: str | None = None
        self._news = trio.Event()

    def offer(self, message: Event | Provisional) -> None:
        if self._ended is not None:
            return
        if len(self._queue) >= QUEUE:
            self.end("lagged")
            return
        self._queue.append(message)
        self._news.set()

    def end(self, reason: str) -> None:
        """No more after what is queued. The first reason stays."""
        if self._ended is None:
            self._ended = reason
        self._news.set()

    async def receive(self) -> BusMessage:
        while not self._queue:
            if self._ended is not None:
                return Ended(self._ended)
            self._news = trio.Event()
            await self._news.wait()
        await trio.lowlevel.checkpoint()
        return self._queue.popleft()


class Bus:
    """All subscriptions of a daemon; their ids count up from 1."""

    def __init__(self) -> None:
        self._last = 0
        self._by_session: dict[int, dict[int, Subscription]] = {}
        self._closed = False
        self.taps: list[Callable[[int, Event], None]] = []
        """are told of every committed event, of every session"""
        self.ends: list[Callable[[int | None], None]] = []
        """are told of a session that is purged, and with None that the daemon stops"""

    def subscribe(self, session: int, *, provisional: bool) -> Subscription:
        """From now on, without a gap: register first, then read the backlog, then skip what it held."""
        self._last += 1
        subscription = Subscription(self._last, session, provisional)
        if self._closed:
            subscription.end("publisher closed")
        self._by_session.setdefault(session, {})[subscription.id] = subscription
        return subscription

    def detach(self, subscription: Subscription) -> None:
        followers = self._by_session.get(subscription.session)
        if followers is not None:
            followers.pop(subscription.id, None)
            if not followers:
                del self._by_session[subscription.session]

    def publish(self, session: int, event: Event) -> None:
        for subscription in self._by_session.get(session, {}).values():
            subscription.offer(event)
        for told in self.taps:
            told(session, event)

    def publish_provisional(self, session: int, channel: int, text: str) -> None:
        for subscription in self._by_session.get(session, {}).values():
            if subscription.provisional:
                subscription.offer(Provisional(channel, text))

    def end_session(self, session: int, reason: str) -> None:
        for subscription in self._by_session.get(session, {}).values():
            subscription.end(reason)
        for told in self.ends:
            told(session)

    def close(self) -> None:
        """The daemon stops: every subscription ends, and so does each that still comes."""
        self._closed = True
        for followers in self._by_session.values():
            for subscription in followers.values():
                subscription.end("publisher closed")
        for told in self.ends:
            told(None)
