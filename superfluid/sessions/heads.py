"""Heads: one row a session, all that a start reads; and the tree that they form."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from superfluid.protocol.refusals import SessionPurged, UnknownSession
from superfluid.protocol.responses import SessionSummary
from superfluid.sessions.state import SessionState

FIRST_REQUEST = 1 << 52
"""Ids of stateless requests that are kept begin here, so that those of other sessions stay dense (decision 38)."""


@dataclass(frozen=True, slots=True)
class FeedHead:
    """What is known of a session's feed without folding it: see `FeedState` and `SessionState`."""

    name: str | None = None
    window: int | None = None
    pre_decode: bool = False
    version: int = 0
    evicted: int = 0
    dropped: int = 0
    taken: int = 0
    frozen_end: int | None = None
    flashes: int = 0
    """standing questions"""
    turns: int = 0
    ever: int = 0
    """tokens ever put on the input"""


def _feed_head(state: SessionState) -> FeedHead:
    feed = state.feed
    return FeedHead(
        name=feed.name,
        window=feed.window,
        pre_decode=feed.pre_decode,
        version=feed.version,
        evicted=feed.evicted,
        dropped=feed.dropped,
        taken=feed.taken,
        frozen_end=feed.frozen_end,
        flashes=len(feed.flashes),
        turns=state.turns,
        ever=state.ever,
    )


@dataclass(frozen=True, slots=True)
class Head:
    """What is known of a session without folding it.

    Its own records begin at event `own_from`; those before are its parent's: `fork_at` for a fork, 0 for a session
    that inherits nothing and for one whose parent was purged. `born_qos` and `born_invariant` are the parent's values
    at the time of the fork, which no record says.
    """

    id: int
    parent: int | None
    fork_at: int
    own_from: int
    events: int
    tokens: int
    epoch: int
    title: str | None
    archived: bool
    meta_version: int
    generation: int
    purged: bool
    open_calls: int
    pin_deadline_ms: int
    born_qos: int
    born_invariant: bool
    born_ms: int = 0
    """Unix milliseconds of its first own record; of one that an older build cut loose, of its parent's first"""
    feed: FeedHead = FeedHead()

    @property
    def is_request(self) -> bool:
        """Whether it is a stateless request that was kept, and nobody has made more of it: taken it out of the
        archive, or given it a name."""
        return self.id >= FIRST_REQUEST and self.archived and self.feed.name is None

    def after(self, state: SessionState) -> Head:
        """This head once the session is in `state`."""
        return replace(
            self,
            parent=state.parent,
            fork_at=state.fork_at,
            events=state.events,
            tokens=len(state.tokens),
            epoch=state.epoch,
            title=state.title,
            archived=state.archived,
            meta_version=state.meta_version,
            generation=state.generation,
            purged=state.purged,
            open_calls=len(state.open_calls),
            pin_deadline_ms=state.pin_deadline_ms,
            feed=_feed_head(state),
        )

    def bare_state(self) -> SessionState:
        """What is known of the session where its records cannot be read: enough to purge it."""
        return SessionState(
            id=self.id,
            parent=self.parent,
            fork_at=self.fork_at,
            epoch=self.epoch,
            events=self.events,
            archived=self.archived,
            meta_version=self.meta_version,
            generation=self.generation,
        )

    def tombstone(self) -> Head:
        """What is left of it once it is purged."""
        return replace(self, title=None, tokens=0, feed=FeedHead())

    def summary(self) -> SessionSummary:
        return SessionSummary(
            id=self.id,
            parent=self.parent,
            fork_at=self.fork_at,
            title=self.title,
            archived=self.archived,
            meta_version=self.meta_version,
            generation=self.generation,
            events=self.events,
            tokens=self.tokens,
            open_tool_calls=self.open_calls,
        )


def first_head(state: SessionState, born_ms: int) -> Head:
    """The head of a session that was just made at `born_ms`; `state` has its first records applied."""
    inherits = state.fork_at > 0
    blank = Head(
        id=state.id,
        parent=None,
        fork_at=0,
        own_from=state.fork_at if inherits else 0,
        events=0,
        tokens=0,
        epoch=1,
        title=None,
        archived=False,
        meta_version=0,
        generation=0,
        purged=False,
        open_calls=0,
        pin_deadline_ms=0,
        born_qos=state.qos,
        born_invariant=state.batch_invariant,
        born_ms=born_ms,
    )
    return blank.after(state)


@dataclass(frozen=True, slots=True)
class Segment:
    """Events `start` to `stop - 1` of a timeline, stored as own records of `session`."""

    session: int
    start: int
    stop: int


class Heads:
    """All sessions of a store, tombstones included, but for those of requests, of which there may be any number.

    Ids start at 1, those of requests at `FIRST_REQUEST`, and are never used again (wire-facts 8.1); `last_id` is the
    highest ever, where `heads` do not tell.
    """

    def __init__(self, heads: Iterable[Head] = (), last_id: int = 0) -> None:
        self._heads: dict[int, Head] = {}
        self._children: dict[int, set[int]] = {}
        self._last = 0
        self._last_request = max(last_id, FIRST_REQUEST - 1)
        self._by_name: dict[str, int] = {}
        for head in heads:
            self.put(head)

    def put(self, head: Head) -> None:
        before = self._heads.get(head.id)
        if before is not None and before.parent is not None:
            self._children[before.parent].discard(head.id)
        if head.purged and head.id >= FIRST_REQUEST:
            self._heads.pop(head.id, None)
        else:
            self._heads[head.id] = head
        self._rename(head.id, before.feed.name if before is not None else None, head.feed.name)
        if head.parent is not None:
            self._children.setdefault(head.parent, set()).add(head.id)
        if head.id >= FIRST_REQUEST:
            self._last_request = max(self._last_request, head.id)
        else:
            self._last = max(self._last, head.id)

    def _rename(self, session: int, before: str | None, after: str | None) -> None:
        if before is not None and before != after and self._by_name.get(before) == session:
            del self._by_name[before]
        if after is not None:
            self._by_name[after] = session

    def named(self, name: str) -> int | None:
        """The living session of that name."""
        return self._by_name.get(name)

    def all_named(self) -> tuple[Head, ...]:
        """Living sessions with a name, in the order in which they were made."""
        heads = (self._heads[session] for session in self._by_name.values())
        return tuple(sorted(heads, key=lambda head: (head.born_ms, head.id)))

    def next_id(self) -> int:
        """A fresh session id; the caller uses it or it is gone."""
        self._last += 1
        return self._last

    def next_request_id(self) -> int:
        """Likewise, of a request that is kept."""
        self._last_request += 1
        return self._last_request

    def any(self, session: int) -> Head | None:
        """The head of a session, purged or not; None for a request that was purged."""
        return self._heads.get(session)

    def live(self, session: int) -> Head:
        """The head of a session that exists. Raises UnknownSession, SessionPurged."""
        head = self._heads.get(session)
        if head is None and not FIRST_REQUEST <= session <= self._last_request:
            raise UnknownSession(session)
        if head is None or head.purged:
            raise SessionPurged(session)
        return head

    def all_live(self) -> Iterator[Head]:
        """Sessions that exist, ids ascending."""
        return (head for _, head in sorted(self._heads.items()) if not head.purged)

    def children(self, session: int) -> tuple[int, ...]:
        """Direct children that exist, ids ascending."""
        return tuple(sorted(c for c in self._children.get(session, ()) if not self._heads[c].purged))

    def descendants(self, session: int) -> tuple[int, ...]:
        """Live descendants, every session after its own descendants: the order in which a cascade purges (8.13)."""
        order: list[int] = []
        stack = [session]
        while stack:
            current = stack.pop()
            order.append(current)
            # Children of a purged session were purged or cut loose with it, so living ones are all there is.
            stack.extend(self.children(current))
        return tuple(reversed(order[1:]))

    def segments(self, session: int, start: int, stop: int) -> tuple[Segment, ...]:
        """Where the events `start` to `stop - 1` of a timeline are stored, in order. Raises SessionPurged."""
        found: list[Segment] = []
        head = self._stored(session)
        stop = min(stop, head.events)
        while start < stop:
            if head.own_from < stop:
                found.append(Segment(head.id, max(start, head.own_from), stop))
                stop = head.own_from
            if start < stop:
                assert head.parent is not None, f"session {head.id} inherits from nobody"
                head = self._stored(head.parent)
        return tuple(reversed(found))

    def _stored(self, session: int) -> Head:
        head = self._heads.get(session)
        if head is None:  # a request that was purged meanwhile: it leaves no tombstone
            raise SessionPurged(session)
        return head
