"""The book of sessions: the folded states in memory, the log behind them, and the one way to write both.

A write is: take the session's turn (`writing`), decide on its state, `commit`. Nothing is applied or published
before it is durable; what could not be committed leaves no trace.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace

import trio

from superfluid.daemon.bus import Bus
from superfluid.daemon.log_threads import LogThreads
from superfluid.protocol import postcard
from superfluid.protocol.frames import MAX_FRAME
from superfluid.protocol.records import Created, EpochBump, Event, EventBody, GenParams
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


@dataclass(frozen=True, slots=True)
class Draft:
    """Records to be: the bodies for one session, in order."""

    state: SessionState
    bodies: tuple[EventBody, ...]


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
    async def writing(self, session: int, *, even_fenced: bool = False) -> AsyncIterator[SessionState]:
        """The session's turn: nobody else writes to it meanwhile. Raises as `live`, SessionDamaged, StoreFailed.

        `even_fenced` is for what has to end before a purge can begin, and for the purge.
        """
        if session in self._passing:
            yield self._passing[session]
            return
        look = self.heads.live if even_fenced else self.live
        look(session)
        async with self.turn(session):
            look(session)  # it may have been purged while this waited
            yield await self._state(session)

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
        return await self.log.look_up(lambda log: self._fold(log, session, stop))

    def _fold(self, log: SessionLog, session: int, stop: int) -> SessionState:
        state = log.snapshot(session, stop)
        if state is None:
            state = SessionState(session)
        own_from = self.heads.live(session).fork_at
        for event in log.read(self.heads.segments(session, state.events, stop)):
            if event.event_id == own_from and own_from > 0:
                self._set_born(state, session)
            state.apply(event)
        return state

    def _set_born(self, state: SessionState, session: int) -> None:
        head = self.heads.live(session)
        state.qos, state.batch_invariant = head.born_qos, head.born_invariant

    # --- writing --------------------------------------------------------------------------------------------------

    async def commit(self, drafts: Sequence[Draft]) -> tuple[tuple[Event, ...], ...]:
        """Make the drafts durable in one transaction, then apply and publish them. The caller has their turns.

        Returns the events of each draft, an `EpochBump` that was due left out. Raises StoreFailed.
        """
        logged = [self._prepare(draft) for draft in drafts if draft.state.id not in self._passing]
        if logged:
            try:
                await self.log.commit([change for change, _ in logged])
            except StoreFailed:
                self._doubtful.update(draft.state.id for _, draft in logged)
                raise
        events = {draft.state.id: change.events[-len(draft.bodies) :] for change, draft in logged}
        for change, draft in logged:
            self._take_over(change, draft.state)
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
        head = first_head(child, events[0].ts_unix_ms)
        change = Change(head, events, snapshot.dump(child) if snapshot.due((0, 0), child) else None)
        await self.log.commit([change])
        self.heads.put(head)
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

    def _prepare(self, draft: Draft) -> tuple[Change, Draft]:
        state, bodies, now = draft.state, list(draft.bodies), self._clock()
        epoch = state.epoch
        if state.id not in self._current_epoch:
            epoch += 1
            bodies.insert(0, EpochBump())
        events = tuple(Event(state.events + place, epoch, now, body) for place, body in enumerate(bodies))
        after = state.copy()  # until the transaction returns, nobody may see it
        for event in events:
            after.apply(event)
        due = snapshot.due((state.events, state.ever), after)
        head = self.heads.live(state.id).after(after) if not after.purged else self._tombstone(after)
        return Change(head, events, snapshot.dump(after) if due and not after.purged else None), draft

    def _tombstone(self, after: SessionState) -> Head:
        return self.heads.live(after.id).after(after).tombstone()

    def _take_over(self, change: Change, state: SessionState) -> None:
        session = change.head.id
        for event in change.events:
            state.apply(event)
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
        cut = []
        for change, draft in map(self._prepare, rerooted):
            inherited = self.heads.segments(draft.state.id, 0, change.head.own_from)
            cut.append((Reroot(replace(change, head=replace(change.head, own_from=0)), inherited), draft))
        sessions = {draft.state.id for draft in (*purged, *rerooted)}
        self._doubtful |= sessions  # until it is known what the log says
        await self.log.purge([change for change, _ in gone], [reroot for reroot, _ in cut])
        self._doubtful -= sessions
        for reroot, draft in cut:
            self._take_over(reroot.change, draft.state)
        for change, draft in gone:
            self._take_over(change, draft.state)
            del self._states[change.head.id]
            self._current_epoch.discard(change.head.id)
        return not self.log.erasing

    # --- reading --------------------------------------------------------------------------------------------------

    async def read(self, session: int, start: int, stop: int | None = None) -> tuple[Event, ...]:
        """Events `start` to `stop - 1` (to the end where None). Raises ReplyTooLong past the frame limit."""
        head = self.live(session)
        try:
            stop = head.events if stop is None else stop
            return await self.log.look_up(lambda log: self._collect(log, session, start, stop))
        except SessionDamaged:
            self.live(session)  # it may have been purged meanwhile
            raise

    def _collect(self, log: SessionLog, session: int, start: int, stop: int) -> tuple[Event, ...]:
        events: list[Event] = []
        size = 0
        for event in log.read(self.heads.segments(session, start, stop)):
            events.append(event)
            size += len(postcard.encode(Event, event))
            if size > MAX_FRAME:
                raise ReplyTooLong(size)
        return tuple(events)

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
