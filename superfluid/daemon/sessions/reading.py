"""Use cases that look: Read, List, Sessions, Tree, Inspect, Subscribe (spec: wire-facts, 8.11, 8.12, 8.17)."""

from __future__ import annotations

from collections.abc import AsyncIterator

from superfluid.daemon.book import Book
from superfluid.daemon.bus import Bus, BusMessage, Ended, Subscription
from superfluid.daemon.engine.room import EngineRoom
from superfluid.protocol.records import Event
from superfluid.protocol.responses import (
    Cold,
    Node,
    Parked,
    Resident,
    SessionInspection,
    SessionSummary,
    StoreId,
    Tier,
)
from superfluid.protocol.ticks import ON_DISK

LOG_VERSION = 2
"""What `wal_version` says: a log whose records carry timestamps."""

LOSSLESS = 0
"""The encoding of parked KV: as it was (wire-facts, section 7)."""


class Reading:
    """Reads never wait for a generation and never change anything."""

    def __init__(self, book: Book, bus: Bus, room: EngineRoom) -> None:
        self._book = book
        self._bus = bus
        self._room = room

    async def read(self, session: int, cursor: int) -> tuple[Event, ...]:
        """Events from `cursor` on; none where it is beyond the end."""
        return await self._book.read(session, cursor)

    def list(self) -> tuple[int, ...]:
        """Archived ones too, requests that are kept left out (decision 38)."""
        return tuple(head.id for head in self._book.heads.all_live() if not head.is_request)

    def sessions(self, include_archived: bool) -> tuple[SessionSummary, ...]:
        return tuple(head.summary() for head in self._book.heads.all_live() if include_archived or not head.archived)

    def tree(self) -> tuple[Node, ...]:
        return tuple(
            (head.id, head.parent, head.fork_at) for head in self._book.heads.all_live() if not head.archived
        )

    async def inspect(self, session: int) -> SessionInspection:
        state = await self._book.now(session)
        summary = self._book.live(session).summary()
        events = await self._book.read(session, 0, state.events)
        return SessionInspection(
            summary=summary,
            params=state.params,
            epoch=state.epoch,
            last_finish=state.last_finish,
            qos_class=state.qos,
            batch_invariant=state.batch_invariant,
            pin_deadline_unix_ms=state.pin_deadline_ms,
            behavior_fingerprint=state.fingerprint,
            open_tool_calls=tuple((call_id, c.name, c.arguments) for call_id, c in state.open_calls),
            tier=self._tier(session),
            tokens=tuple(state.tokens),
            events=events,
            wal_version=LOG_VERSION,
            store_id=StoreId(self._book.store_id),
        )

    def _tier(self, session: int) -> Tier:
        if self._room.in_flight.of_session(session) is not None:
            return Resident()
        place = self._room.kv.get(session)
        return Parked(place.covered, LOSSLESS) if place is not None and place.tier == ON_DISK else Cold()

    def subscribe(self, session: int, provisional: bool) -> Subscription:
        """Raises UnknownSession, SessionPurged; then there is no subscription."""
        self._book.live(session)
        return self._bus.subscribe(session, provisional=provisional)

    async def follow(self, subscription: Subscription, cursor: int) -> AsyncIterator[BusMessage]:
        """The backlog from `cursor`, then what happens, each event once, `Ended` last."""
        backlog_end = self._book.live(subscription.session).events
        due = max(cursor, backlog_end)
        async for event in self._book.backlog(subscription.session, cursor, backlog_end):
            yield event
        while True:
            message = await subscription.receive()
            if not isinstance(message, Event):
                yield message
            elif message.event_id >= due:
                yield message
                due = message.event_id + 1
            if isinstance(message, Ended):
                return

    def unsubscribe(self, subscription: Subscription) -> None:
        subscription.end("unsubscribed")
        self._bus.detach(subscription)
