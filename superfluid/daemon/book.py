"""The book of sessions: the folded states in memory, the log behind them, and the one way to write both.

A write is: take the session's turn (`writing`), decide on its state, `commit`. Nothing is applied or published
before it is durable; what could not be committed leaves no trace.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial

import trio

from superfluid.daemon.bus import Bus
from superfluid.daemon.draft import LONG, Draft, Prepared
from superfluid.daemon.log_threads import LogThreads
from superfluid.protocol import postcard
from superfluid.protocol.frames import MAX_FRAME
from superfluid.protocol.records import Created, Event, EventBody, GenParams, size_of
from superfluid.protocol.refusals import ReplyTooLong, SessionDamaged, SessionPurged, StoreFailed
from superfluid.sessions import snapshot
from superfluid.sessions.heads import Head, Heads, first_head
from superfluid.sessions.state import SessionState
from superfluid.store.log import Change, Reroot, SessionLog

CACHED = 256
"""Folded states kept in memory beyond those in use."""

FIRST_PASSING = 1 << 53
"""Ids of sessions that are not logged begin here, beyond those of requests that are (decision 38)."""

BACKLOG_PAGE = 256
"""Events read at once for a subscriber."""

PAGE = 512
"""Events that are read or folded before others who read get their turn."""


class Book:
    """All sessions of one daemon. `clock` gives unix milliseconds."""

    def __init__(self, log: SessionLog, bus: Bus, clock: Callable[[], int]) -> None:
        self.log = LogThreads(log)
        self._bus = bus
        self._clock = clock
        self.heads = Heads(log.heads(), log.last_id())
        self.store_id = log.store_id
        self._states: OrderedDict[int, SessionState] = OrderedDict()
        self._turns: dict[int, trio.Lock] = {}
        self._in_use: dict[int, int] = {}
        self._current_epoch: set[int] = set()
        """sessions that were written to since this daemon started"""
        self._doubtful: set[int] = set()
        """sessions whose last commit failed: what the log says of them is looked up before anything else"""
        self.fenced: set[int] = set()
        """sessions that are being purged"""
        self._passing: dict[int, SessionState] = {}
        """sessions of stateless requests: in memory only, known to nobody but their request"""
        self._copied: dict[int, int] = {}
        """those of them that began as copies, and of whom"""
        self._next_passing = FIRST_PASSING
        self.erasures: Counter[int] = Counter()
        """how often records were rewritten that a session has, its own or inherited"""

    # --- turns and states -----------------------------------------------------------------------------------------

    def live(self, session: int) -> Head:
        """The head of a session that exists. Raises UnknownSession, SessionPurged."""
        head = self.heads.live(session)
        if session in self.fenced:
            raise SessionPurged(session)
        return head

    @asynccontextmanager
    async def writing(
        self, session: int, *, even_fenced: bool = False, even_damaged: bool = False
    ) -> AsyncIterator[SessionState]:
        """The session's turn: nobody else writes to it meanwhile. Raises as `live`, SessionDamaged, StoreFailed.

        `even_fenced` is for what was drawn, which has to end before a purge can begin, and for the purge, which with
        `even_damaged` gets what the head says of a session whose records do not. Sessions that are not logged exist
        for what was drawn alone: their ids are easily guessed.
        """
        if even_fenced and session in self._passing:
            yield self._passing[session]
            return
        look = self.heads.live if even_fenced else self.live
        look(session)
        async with self.turn(session):
            look(session)  # it may have been purged while this waited
            try:
                state = await self._state(session)
            except SessionDamaged:
                if not even_damaged:
                    raise
                state = self.heads.live(session).bare_state()
            yield state

    @asynccontextmanager
    async def turn(self, session: int) -> AsyncIterator[None]:
        """As `writing`, without a look at the session. Several turns are taken in ascending order of ids."""
        lock = self._turns.setdefault(session, trio.Lock())
        self._in_use[session] = self._in_use.get(session, 0) + 1
        try:
            async with lock:
                yield
        finally:
            self._in_use[session] -= 1
            if not self._in_use[session]:
                del self._in_use[session]
                del self._turns[session]

    async def _state(self, session: int) -> SessionState:
        if session in self._doubtful:
            await self._look_again(session)
        state = self._states.get(session)
        if state is None:
            state = await self._folded(session, self.heads.live(session).events)
            self._states[session] = state
            self._forget_old()
        self._states.move_to_end(session)
        return state

    def _forget_old(self) -> None:
        for session in list(self._states):
            if len(self._states) <= CACHED:
                break
            if session not in self._in_use:
                del self._states[session]

    async def now(self, session: int) -> SessionState:
        """A copy of the session's state as it is now: for what takes long and must not keep its turn meanwhile."""
        async with self.writing(session) as state:
            return state.copy()

    async def folded(self, state: SessionState, events: int) -> SessionState:
        """A state of its own: `state`'s session as it was with its first `events` events."""
        if events == state.events:
            return state.copy()
        return await self._folded(state.id, events)

    async def _folded(self, session: int, stop: int) -> SessionState:
        state = await self.log.ask(lambda log: log.snapshot(session, stop)) or SessionState(session)
        for upto in (*range(state.events + PAGE, stop, PAGE), stop):
            await self.log.look_up(partial(self._fold, state, session, upto))
        return state

    def _fold(self, state: SessionState, session: int, stop: int, log: SessionLog) -> None:
        head = self.heads.live(session)
        for event in log.read(self.heads.segments(session, state.events, stop), bare=True):
            if event.event_id == head.fork_at > 0:
                state.qos, state.batch_invariant = head.born_qos, head.born_invariant
            state.apply(event)

    # --- writing --------------------------------------------------------------------------------------------------

    async def commit(self, drafts: Sequence[Draft]) -> tuple[tuple[Event, ...], ...]:
        """Make the drafts durable in one transaction, then apply and publish them. The caller has their turns.

        Returns the events of each draft, an `EpochBump` that was due left out. Raises StoreFailed.
        """
        logged = [await self._prepared(draft) for draft in drafts if draft.state.id not in self._passing]
        if logged:
            try:
                await self.log.commit([one.change for one in logged])
            except StoreFailed:
                self._doubtful.update(one.session for one in logged)
                raise
        events = {one.session: one.events for one in logged}
        for one in logged:
            self._take_over(one)
        for draft in drafts:
            if draft.state.id not in events:
                events[draft.state.id] = self.pass_by(draft.state, *draft.bodies)
        return tuple(events[draft.state.id] for draft in drafts)

    async def commit_one(self, state: SessionState, *bodies: EventBody) -> Event:
        """As `commit`, of one session; returns the event of the last body."""
        ((*_, event),) = await self.commit([Draft(state, bodies)])
        return event

    async def commit_new(self, child: SessionState, events: tuple[Event, ...]) -> None:
        """A session that was just made: `events` are its own records, applied to `child` already."""
        await self.commit_made(child, await self.made(child, events))

    async def made(self, child: SessionState, events: tuple[Event, ...]) -> Change:
        """What `commit_made` commits: made out before, so that whoever waits for the parent's turn waits less."""
        change = Change(first_head(child, events[0].ts_unix_ms), events)
        if snapshot.due((0, 0), child):
            return await trio.to_thread.run_sync(lambda: replace(change, snapshot=snapshot.dump(child)).encoded())
        if sum(size_of(event.body) for event in events) >= LONG:
            return await trio.to_thread.run_sync(change.encoded)
        return change

    async def commit_made(self, child: SessionState, change: Change) -> None:
        """As `commit_new`."""
        await self.log.commit([change])
        self.heads.put(change.head)
        self._current_epoch.add(child.id)
        self._states[child.id] = child
        self._forget_old()

    @contextmanager
    def passing(self, params: GenParams, like: SessionState | None = None) -> Iterator[SessionState]:
        """A session for one stateless request: never logged, gone with the block.

        With `like`, a copy of that session's state, as long as it lives: raises SessionPurged.
        """
        state = SessionState(self._next_passing)
        if like is not None:
            self.live(like.id)
            state = like.copy()
            self._copied[self._next_passing] = like.id
        state.id, state.params = self._next_passing, params
        self._next_passing += 1
        self._passing[state.id] = state
        try:
            if like is None:
                self.pass_by(state, Created(None, params))
            yield state
        finally:
            del self._passing[state.id]
            self._copied.pop(state.id, None)

    def check_copy(self, state: SessionState) -> None:
        """Whether what `state` is a copy of, if it is one, still lives. Raises SessionPurged."""
        if (session := self._copied.get(state.id)) is not None:
            self.live(session)

    def copies(self, sessions: Iterable[int]) -> tuple[int, ...]:
        """The sessions that are not logged and began as copies of these."""
        of = frozenset(sessions)
        return tuple(copy for copy, session in self._copied.items() if session in of)

    def pass_by(self, state: SessionState, *bodies: EventBody) -> tuple[Event, ...]:
        """Apply records to a session that is not logged."""
        events = tuple(Event(state.events + place, 1, self._clock(), body) for place, body in enumerate(bodies))
        for event in events:
            state.apply(event)
        return events

    def doubt(self, sessions: Iterable[int]) -> None:
        """Look up in the log what is true of these sessions before they are used again."""
        self._doubtful.update(session for session in sessions if session not in self._passing)

    def now_ms(self) -> int:
        return self._clock()

    def next_event(self, state: SessionState) -> int:
        """The id that the first record of the next commit gets. The caller has the session's turn."""
        bump = state.id not in self._current_epoch and not self.is_passing(state)
        return state.events + bump

    def is_passing(self, state: SessionState) -> bool:
        """Whether the session is one that is not logged."""
        return state.id in self._passing

    async def _prepared(self, draft: Draft) -> Prepared:
        if draft.takes_long:  # nobody else writes to the session meanwhile
            return await trio.to_thread.run_sync(lambda: self._prepare(draft).encoded())
        return self._prepare(draft)

    def _prepare(self, draft: Draft) -> Prepared:
        session = draft.state.id
        return draft.prepared(self.heads.live(session), self._clock(), bump=session not in self._current_epoch)

    def _take_over(self, prepared: Prepared) -> None:
        change, state, session = prepared.change, prepared.draft.state, prepared.session
        state.become(prepared.after)
        self.heads.put(change.head)
        self._states[session] = state
        self._current_epoch.add(session)
        for event in change.events:
            self._bus.publish(session, event)

    async def _look_again(self, session: int) -> None:
        head = await self.log.ask(lambda log: log.head(session))
        if head is not None:
            self.heads.put(head)
        self._states.pop(session, None)
        self._doubtful.discard(session)

    async def purge(self, purged: Sequence[Draft], rerooted: Sequence[Draft]) -> bool:
        """One transaction that erases sessions and cuts living children loose; the caller has all their turns.

        False where it is durable, but the write-ahead log could not be emptied yet. Raises StoreFailed.
        """
        gone = [self._prepare(draft) for draft in purged]
        cut, reroots = [], []
        for one in map(self._prepare, rerooted):
            inherited = self.heads.segments(one.draft.state.id, 0, one.change.head.own_from)
            change = replace(one.change, head=replace(one.change.head, own_from=0))
            cut.append(replace(one, change=change))
            reroots.append(Reroot(change, inherited))
        sessions = {draft.state.id for draft in (*purged, *rerooted)}
        self._doubtful |= sessions  # until it is known what the log says
        erased = await self.log.purge([one.change for one in gone], reroots)
        self._doubtful -= sessions
        for one in (*cut, *gone):
            self._take_over(one)
        for one in gone:
            del self._states[one.session]
            self._current_epoch.discard(one.session)
            self.erasures.pop(one.session, None)
        return erased

    # --- reading --------------------------------------------------------------------------------------------------

    async def read(
        self, session: int, start: int, stop: int | None = None, *, even_fenced: bool = False
    ) -> tuple[Event, ...]:
        """Events `start` to `stop - 1` (to the end where None). Raises as `live`, but for `even_fenced`, and
        SessionDamaged, StoreFailed, ReplyTooLong past the frame limit."""
        look = self.heads.live if even_fenced else self.live
        head = look(session)
        stop = head.events if stop is None else min(stop, head.events)
        events: list[Event] = []
        size = 0
        try:
            for at in range(start, stop, PAGE):
                length, page = await self.log.look_up(partial(self._page, session, at, min(at + PAGE, stop)))
                size += length
                if size > MAX_FRAME:
                    raise ReplyTooLong(size)
                events += page
        except SessionDamaged:
            look(session)  # it may have been purged meanwhile
            raise
        return tuple(events)

    def _page(self, session: int, start: int, stop: int, log: SessionLog) -> tuple[int, list[Event]]:
        """Events, and how many bytes of a reply they are; no more of them than fit one."""
        events: list[Event] = []
        size = 0
        for event in log.read(self.heads.segments(session, start, stop)):
            events.append(event)
            size += len(postcard.encode(Event, event))
            if size > MAX_FRAME:
                break
        return size, events

    async def backlog(self, session: int, start: int, stop: int) -> AsyncIterator[Event]:
        """Events `start` to `stop - 1`, a page at a time."""
        most = BACKLOG_PAGE
        while start < stop:
            try:
                page = await self.read(session, start, min(start + most, stop))
            except ReplyTooLong:
                if most == 1:
                    raise
                most = max(1, most // 4)
                continue
            for event in page:
                yield event
            start += len(page)
