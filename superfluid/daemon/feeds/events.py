"""What happens to feeds, told to whoever follows them (spec: streaming-facts, section 6).

Nobody who publishes ever waits: a follower that falls too far behind is ended, after what it already holds.
"""

from __future__ import annotations

from collections import deque

import trio

from superfluid.daemon.bus import Bus
from superfluid.protocol.feed_responses import FeedNews

QUEUE = 64
"""Events that a follower may lag behind (decision 13)."""


class Follower:
    """One follower of one feed. `receive` gives its events in order, and None at the end."""

    def __init__(self, session: int) -> None:
        self.session = session
        self._queue: deque[FeedNews] = deque()
        self._ended = False
        self._news = trio.Event()

    def offer(self, event: FeedNews) -> None:
        if self._ended:
            return
        if len(self._queue) >= QUEUE:
            self.end()
            return
        self._queue.append(event)
        self._news.set()

    def end(self) -> None:
        """No more after what is queued."""
        self._ended = True
        self._news.set()

    async def receive(self) -> FeedNews | None:
        while not self._queue:
            if self._ended:
                return None
            self._news = trio.Event()
            await self._news.wait()
        await trio.lowlevel.checkpoint()
        return self._queue.popleft()


class FeedEvents:
    """All followers of a daemon. They end with their session, and when the daemon stops."""

    def __init__(self, bus: Bus) -> None:
        self._followers: dict[int, list[Follower]] = {}
        self._closed = False
        bus.ends.append(self._end)

    def follow(self, session: int) -> Follower:
        """From now on, without a gap."""
        follower = Follower(session)
        if self._closed:
            follower.end()
        self._followers.setdefault(session, []).append(follower)
        return follower

    def leave(self, follower: Follower) -> None:
        followers = self._followers.get(follower.session, [])
        if follower in followers:
            followers.remove(follower)
        if not followers:
            self._followers.pop(follower.session, None)

    def followed(self, session: int) -> bool:
        return session in self._followers

    def publish(self, session: int, event: FeedNews) -> None:
        for follower in self._followers.get(session, ()):
            follower.offer(event)

    def _end(self, session: int | None) -> None:
        self._closed = self._closed or session is None
        for followed, followers in self._followers.items():
            if session in (None, followed):
                for follower in followers:
                    follower.end()
