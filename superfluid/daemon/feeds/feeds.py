"""Use cases of streaming sessions as things: names, windows, pushes, what they look like, who follows them.

A feed is a session with a name; every session can be pushed to (decisions 1 and 15, 28 to 31).
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager

import trio

from superfluid.daemon.book import Book
from superfluid.daemon.bus import Bus
from superfluid.daemon.engine.room import EngineRoom
from superfluid.daemon.feeds.evaluating import Evaluating
from superfluid.daemon.feeds.events import FeedEvents
from superfluid.daemon.feeds.ingesting import Ingesting
from superfluid.daemon.sessions.generating import Generating
from superfluid.daemon.sessions.keeping import Keeping
from superfluid.protocol.codes import PurgeMode
from superfluid.protocol.feed_refusals import NameTaken, TooManyLive, UnknownName
from superfluid.protocol.feed_responses import Connected, DataUpdated, FeedNews, FeedReport, FlashReady, Pushed
from superfluid.protocol.records import Event, EventBody, FlashAnswered, GenParams, Ingested, Rewound
from superfluid.protocol.refusals import ProtocolRefusal, Refusal, SessionBusy, ShuttingDown
from superfluid.sessions import decide, naming
from superfluid.sessions.ingest import Room
from superfluid.sessions.senders import Accepted, Numbered, Senders
from superfluid.sessions.state import SessionState

GIVEN_NAME = "sess_"
"""What names begin with that the daemon gives."""

LONGEST_ID = 20
"""Digits of an id: more than 64 bits hold are none."""

_PARAMS = GenParams()


class Feeds:
    """`most` is how many sessions may have a name at once, `limits` the room that data has."""

    def __init__(
        self,
        book: Book,
        bus: Bus,
        room: EngineRoom,
        generating: Generating,
        keeping: Keeping,
        ingesting: Ingesting,
        evaluating: Evaluating,
        events: FeedEvents,
        limits: Room,
        most: int,
    ) -> None:
        self._book = book
        self._room = room
        self._generating = generating
        self._keeping = keeping
        self._ingesting = ingesting
        self._evaluating = evaluating
        self._events = events
        self._limits = limits
        self._most = most
        self._coming: dict[str, trio.Event] = {}
        """names that are being given"""
        self._first_names = 0
        """how many of them to sessions that had none: those will count as live"""
        self._used: dict[int, int] = {}
        """when sessions were last used, in unix milliseconds"""
        self._since = book.now_ms()
        self._told: dict[int, int] = {}
        """the data versions that followers know"""
        self._senders: dict[int, Senders] = {}
        self._run = secrets.randbits(63)
        keeping.background = ingesting
        evaluating.tell = events.publish
        ingesting.after_batch.append(evaluating.more)
        room.in_flight.begun.append(self._use)
        room.in_flight.over.append(self._use)
        bus.taps.append(self._tell)
        bus.ends.append(self._forget)

    # --- names ----------------------------------------------------------------------------------------------------

    async def open(self, name: str | None, window: int | None, pre_decode: bool) -> int:
        """A new session with a name, one that the daemon gives where `name` is None.

        Raises BadName, BadWindow, NameTaken, and TooManyLive.
        """
        named = naming.name(GIVEN_NAME + secrets.token_hex(12) if name is None else name)
        opened = naming.feed(window, pre_decode, self._limits)
        async with self._giving(named.name, None):
            session = SessionState(self._book.heads.next_id())
            bodies: tuple[EventBody, ...] = (decide.create(None, _PARAMS), named, opened)
            events = tuple(Event(place, 1, self._book.now_ms(), body) for place, body in enumerate(bodies))
            for event in events:
                session.apply(event)
            await self._book.commit_new(session, events)
        self._use(session.id)
        return session.id

    async def name(self, session: int, name: str) -> Event:
        """Give a session a name, or another one. Raises BadName, NameTaken and TooManyLive."""
        named = naming.name(name)
        async with self._giving(name, session), self._book.writing(session) as state:
            event = await self._book.commit_one(state, named)
        self._use(session)
        return event

    @asynccontextmanager
    async def _giving(self, name: str, session: int | None) -> AsyncIterator[None]:
        """Keep a name for the session that is about to get it, None for a new one.

        Whoever wants it meanwhile waits: a client that is refused looks for the session, and has to find it.
        """
        while (coming := self._coming.get(name)) is not None:
            await coming.wait()
        holder = self._book.heads.named(name)
        if holder is not None and holder != session:
            raise NameTaken(name)
        nameless = session is None or self._book.live(session).feed.name is None
        if nameless and len(self._book.heads.all_named()) + self._first_names >= self._most:
            raise TooManyLive(self._most)
        given = self._coming[name] = trio.Event()
        self._first_names += nameless
        try:
            yield
        finally:
            self._first_names -= nameless
            del self._coming[name]
            given.set()

    def resolve(self, key: str) -> int:
        """The living session of that name, or of that id where it is digits. Raises UnknownName, UnknownSession."""
        if key.isascii() and key.isdigit() and len(key) <= LONGEST_ID:
            return self._book.live(int(key)).id
        session = self._book.heads.named(key)
        if session is None or session in self._book.fenced:
            raise UnknownName(key)
        return session

    def ids(self) -> tuple[int, ...]:
        """The sessions that have a name, in the order in which they were made."""
        return tuple(head.id for head in self._book.heads.all_named() if head.id not in self._book.fenced)

    def names(self) -> tuple[tuple[int, str], ...]:
        """The same, each with its name."""
        named = [head for head in self._book.heads.all_named() if head.id not in self._book.fenced]
        return tuple((head.id, head.feed.name or "") for head in named)

    # --- what a session looks like --------------------------------------------------------------------------------

    async def report(self, session: int) -> FeedReport:
        """The session as it is at this moment: version, stream and KV are of one batch."""
        head = self._book.live(session)
        self._ingesting.looked_at(session)
        feed, backlog = head.feed, self._ingesting.backlog(session)
        ready = self._evaluating.ready_at(session, (feed.version, feed.ever)) if feed.pre_decode else None
        place = self._room.kv.get(session)
        return FeedReport(
            session=session,
            name=feed.name,
            created=head.born_ms // 1000,
            last_used=self._used.get(session, head.born_ms) // 1000,
            tokens=head.tokens,
            kv_tokens=min(place.covered, head.tokens) if place is not None else 0,
            busy=self._room.in_flight.busy(session),
            turns=feed.turns,
            data_end=head.tokens,
            data_version=feed.version,
            pending=backlog.pending,
            pre_decode=feed.pre_decode,
            ready=ready is not None,
            evicted=feed.evicted,
            window=feed.window,
            frozen_end=feed.frozen_end,
            ready_token=ready.token if ready is not None else None,
            ready_gap=ready.gap if ready is not None else None,
            taken=feed.taken,
            total_pushed=backlog.total_pushed,
            total_dropped=backlog.total_dropped,
            pending_bytes=backlog.pending_bytes,
            run=self._run,
            base=backlog.base,
        )

    def unused_since(self, ms: int) -> tuple[int, ...]:
        """Sessions with a name that nobody follows, or has used since a Unix time in milliseconds."""
        return tuple(
            session
            for session in self.ids()
            if self._used.get(session, self._since) < ms
            and not self._room.in_flight.busy(session)
            and not self._ingesting.has_work(session)
            and not self._events.followed(session)
        )

    def touch(self, session: int) -> None:
        """The session was used. Raises UnknownSession, SessionPurged."""
        self._book.live(session)
        self._use(session)

    def _use(self, session: int) -> None:
        if self._book.heads.any(session) is not None:  # not one of a stateless request
            self._used[session] = self._book.now_ms()

    # --- data -----------------------------------------------------------------------------------------------------

    def push(self, session: int, data: Sequence[str], numbered: Numbered | None = None) -> Pushed:
        """Take entries in; never waits. What is dropped for them is counted. Of those that their sender `numbered`
        only as many are taken in as there is room for, and none again where the same push was before: the answer is
        that one's then.

        The version in the answer is the one before the batch that will hold them. While a batch is under way, it is
        foretold: a daemon that dies before that is durable takes the version back, and so whoever waits for a later
        one does not take lost entries for ingested. Raises UnknownSession, SessionPurged, ShuttingDown.
        """
        if self._generating.closing:
            raise ShuttingDown
        if not data:
            raise ProtocolRefusal("push: there is no entry")
        feed = self._book.live(session).feed
        senders = self._senders.setdefault(session, Senders())
        accepted = senders.before(numbered) if numbered is not None else None
        if accepted is None:
            if numbered is not None:
                data = data[: self._ingesting.backlog(session).fit(data)]
            dropped = self._ingesting.push(session, data) if data else 0
            accepted = Accepted(len(data), dropped, self._ingesting.backlog(session).total_pushed)
            if numbered is not None and data:
                senders.keep(numbered, accepted)
        self._use(session)
        backlog = self._ingesting.backlog(session)
        return Pushed(
            pushed=accepted.pushed,
            dropped=accepted.dropped,
            pending=backlog.pending,
            pending_bytes=backlog.pending_bytes,
            total_pushed=accepted.last,
            total_dropped=backlog.total_dropped,
            data_version=feed.version + self._ingesting.under_way(session),
            taken=feed.taken,
        )

    async def delete(self, session: int) -> None:
        """Purge the session; its forks go on by themselves (decision 15). Raises SessionBusy, and as a purge does."""
        head = self._book.live(session)
        if self._room.in_flight.busy(session):
            raise SessionBusy(session)
        await self._keeping.purge(session, head.generation, PurgeMode.REROOT)

    # --- events ---------------------------------------------------------------------------------------------------

    def subscribe(self, session: int) -> AsyncGenerator[FeedNews, None]:
        """What is there now, then what happens, until the session or the daemon ends, or the follower lags.

        Raises UnknownSession, SessionPurged.
        """
        self.touch(session)
        return self._follow(session)

    async def _follow(self, session: int) -> AsyncGenerator[FeedNews, None]:
        follower = self._events.follow(session)  # here: who never takes an event leaves no follower behind
        try:
            state = await self._book.now(session)
            self._evaluating.refresh(state)
            version, flashes = state.feed.version, state.feed.flashes
            yield Connected(session, state.feed.name, version, len(flashes))
            there = [
                FlashReady(flash_id, flash.query, flash.value, flash.version, flash.confidence)
                for flash_id, flash in flashes.items()
                if flash.value is not None
            ]
            for answer in there:
                yield answer
            while (event := await follower.receive()) is not None:
                # Told again is what had happened already when the session was looked at.
                if event in there or (isinstance(event, DataUpdated) and event.data_version <= version):
                    continue
                yield event
        except Refusal:
            return  # purged meanwhile
        finally:
            self._events.leave(follower)

    def _tell(self, session: int, event: Event) -> None:
        """A record was committed."""
        body = event.body
        if not isinstance(body, Ingested | FlashAnswered):
            self._use(session)
        if isinstance(body, Ingested | Rewound) and body.version != self._told.get(session):
            self._told[session] = body.version
            # Nothing here may raise, not even for a session that is about to be purged: the commit is under way.
            head = self._book.heads.any(session)
            if head is not None and self._events.followed(session):
                pending = self._ingesting.pending(session)
                self._events.publish(session, DataUpdated(body.version, head.tokens, pending))

    def _forget(self, session: int | None) -> None:
        if session is not None:
            self._used.pop(session, None)
            self._told.pop(session, None)
            self._senders.pop(session, None)
