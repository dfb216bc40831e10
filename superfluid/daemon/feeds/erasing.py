"""Data that left a session's stream long ago is erased from log and KV, while the session lives on (decision 22).

A batch stays as a record that says how much is gone. Forks share the records of their parent: an entry goes once it
has left the streams of all who have it, and no fork is made any more that would need it. All is done in the
background, in steps that hold nobody up for long; what a daemon leaves undone that dies, the next one does.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace

import trio

from superfluid.daemon.book import Book
from superfluid.daemon.bus import Bus
from superfluid.daemon.engine.room import EngineRoom
from superfluid.daemon.feeds.progress import Leaving, Progress, Sweep, Timeline
from superfluid.daemon.parked_files import ParkedFiles
from superfluid.protocol.records import Erased, Event, Ingested
from superfluid.protocol.refusals import Refusal, SessionPurged, StoreFailed
from superfluid.protocol.ticks import pack
from superfluid.sessions import fading, snapshot
from superfluid.sessions.state import SessionState

_LOG = logging.getLogger("superfluid.erasing")

LOOKS = 10
"""How often one looks within the time for which data is kept."""

LONGEST = 60.0
"""Seconds between two looks at most."""

STEP = 64
"""Events looked at in one step."""

CHUNK = 16
"""Batches of which data is erased in one transaction."""

REST = 2.0
"""After each step, so many times as long as it took belongs to others."""

_END = 1 << 64


@dataclass(frozen=True, slots=True)
class _Shared:
    """Own records of a session, looked at up to the event `reached`, and who shares them: `limits` are, for each, the
    event before which it has them and how many entries have left its stream for long enough; of the session itself
    first."""

    session: int
    reached: int
    sharers: tuple[tuple[int, int], ...]
    limits: tuple[tuple[int, int], ...]

    @property
    def due(self) -> int:
        """How many entries have left the session itself."""
        return self.limits[0][1]

    def leaving(self, event: Event, before: int) -> int:
        """How many entries of a batch have left everybody who has it; `before` is how many come before it."""
        most = min(gone for stop, gone in self.limits if event.event_id < stop)
        return max(0, min(most - before, fading.size(_batch(event))))

    def is_left(self, event: Event, before: int) -> bool:
        """Whether somebody else still has entries of a batch that have left the session."""
        return self.leaving(event, before) < min(self.due - before, fading.size(_batch(event)))


class Erasing:
    """`seconds` after it has left, data is erased. `parked` is wherever KV may lie on disk, `elsewhere` what of that
    the worker does not know."""

    def __init__(
        self, book: Book, bus: Bus, room: EngineRoom, parked: ParkedFiles, elsewhere: ParkedFiles, seconds: float
    ) -> None:
        self._book = book
        self._room = room
        self._parked = parked
        self._elsewhere = elsewhere
        self._seconds = seconds
        self._progress = Progress(book)
        self._refused: set[int] = set()
        """sessions of which it was said that they are left alone"""
        bus.ends.append(self._forget)

    async def run(self) -> None:
        """Erase what is due, for ever."""
        while True:
            await self.look()
            await trio.sleep(min(max(self._seconds / LOOKS, 0.1), LONGEST))

    async def look(self) -> None:
        """Erase what is due now."""
        due = self._book.now_ms() - int(self._seconds * 1000)
        for head in tuple(self._book.heads.all_live()):
            if head.feed.evicted:
                await self._try(head.id, due)
        await self._progress.tidy()

    async def _try(self, session: int, due: int) -> None:
        try:
            await self._sweep(session, due)
            await self._book.log.erase_rest()
            self._refused.discard(session)
        except SessionPurged:
            pass  # or one that it inherits from is being purged: the next look finds where its records are then
        except Refusal as refusal:  # damaged, or the disk is full
            if session not in self._refused:
                _LOG.warning("data of session %s is not erased: %s", session, refusal.code)
            self._refused.add(session)
        except Exception:
            _LOG.exception("data of session %s is not erased", session)

    async def _sweep(self, session: int, due: int) -> None:
        """Erase what is due of a session's own records."""
        sharers = self._sharers(session)
        limits = []
        for sharer, stop in sharers:
            timeline = await self._looked_at(sharer, due)
            if timeline.fading.gone > timeline.settled:
                await self._settle(sharer, timeline)
            limits.append((stop, timeline.settled))
        own, sweep = self._progress.timelines.get(session), self._progress.sweeps.get(session)
        if own is None or sweep is None or not limits or tuple(limits) == sweep.limits:
            return
        shared = _Shared(session, own.fading.reached, sharers, tuple(limits))
        if await self._look_back(shared, sweep) and await self._go_on(shared, sweep):
            sweep.limits = shared.limits
            for sharer, _ in sharers:
                await self._progress.note(sharer)

    async def _look_back(self, shared: _Shared, sweep: Sweep) -> bool:
        """Erase what of the batches passed by is due now; false where others share the records than was thought."""
        for event_id, before in tuple(sweep.left.items()):
            (event,) = await self._batches(shared.session, event_id, event_id + 1)
            if not await self._erase(shared, sweep, [(event, before)]):
                return False
        return True

    async def _go_on(self, shared: _Shared, sweep: Sweep) -> bool:
        """Erase what is due from where the sweep is; false as `_look_back`."""
        reached = shared.reached
        while sweep.event < reached:
            stop = min(sweep.event + STEP, reached)
            batches = []
            ingested = sweep.ingested
            for event in await self._batches(shared.session, sweep.event, stop):
                batches.append((event, ingested))
                if ingested + fading.size(_batch(event)) > shared.due:
                    stop = reached = event.event_id
                    break
                ingested += fading.size(_batch(event))
            if not await self._erase(shared, sweep, batches):
                return False
            sweep.event, sweep.ingested = stop, ingested
        return True

    async def _erase(self, shared: _Shared, sweep: Sweep, batches: Sequence[tuple[Event, int]]) -> bool:
        """Erase what is due of batches, each with the number of entries before it; false as `_look_back`."""
        rests = []
        for event, before in batches:
            rest = _rest(event, shared.leaving(event, before))
            if rest is not None:
                rests.append(rest)
        for chunk in _chunks(rests):
            if not await self._write(shared, chunk):
                return False
        for event, before in batches:
            sweep.left.pop(event.event_id, None)
            if shared.is_left(event, before):
                sweep.left[event.event_id] = before
        return True

    async def _write(self, shared: _Shared, rests: Sequence[Event]) -> bool:
        async with AsyncExitStack() as turns:
            # Forks are made in their parent's turn: with all these turns, nobody begins to share the records.
            for sharer, _ in shared.sharers:
                await turns.enter_async_context(self._book.turn(sharer))
            if self._sharers(shared.session) != shared.sharers:
                return False
            try:
                await self._book.log.rewrite(lambda log: log.erase_data(shared.session, rests))
            finally:
                self._book.erasures.update(sharer for sharer, _ in shared.sharers)
        return True

    def _sharers(self, session: int) -> tuple[tuple[int, int], ...]:
        """The session, and those that inherit own records of it: each with the event before which it has them all.
        Nobody where the session is going."""
        heads, fenced = self._book.heads, self._book.fenced
        if (head := heads.any(session)) is None or head.purged or session in fenced:
            return ()
        found = [(session, _END)]
        for other in sorted(heads.descendants(session)):
            segments = heads.segments(other, 0, heads.live(other).events)
            found += [(other, segment.stop) for segment in segments if segment.session == session]
        return tuple(found)

    # --- what has left --------------------------------------------------------------------------------------------

    async def _looked_at(self, session: int, due: int) -> Timeline:
        """The session's timeline up to the last batch that is as old as `due`."""
        timelines, sweeps = self._progress.timelines, self._progress.sweeps
        if session not in timelines:
            await self._progress.recall(session)
        timeline = timelines[session]
        head = self._book.live(session)
        if session in sweeps and sweeps[session].own_from != head.own_from:
            del sweeps[session]  # its parent was purged: what it inherited has become its own
        forks = {child: self._book.heads.live(child).own_from for child in self._book.heads.children(session)}
        while True:
            at = timeline.fading.reached
            if session not in sweeps and (at == head.own_from or not head.own_from):
                ingested = timeline.fading.ingested if head.own_from else 0
                sweeps[session] = Sweep(head.own_from, head.own_from, ingested)
            for fork, point in forks.items():
                if point == at:  # what comes before it need not be looked at again
                    timelines.setdefault(fork, Timeline(timeline.fading))
            stop = min([head.events, at + STEP, *(point for point in (head.own_from, *forks.values()) if point > at)])
            if at >= stop:
                return timeline
            for event in await self._batches(session, at, stop):
                if event.ts_unix_ms > due:
                    timeline.fading = timeline.fading.up_to(event.event_id)
                    return timeline
                timeline.fading = timeline.fading.after(event.event_id, _batch(event))
            timeline.fading = timeline.fading.up_to(stop)

    async def _settle(self, session: int, timeline: Timeline) -> None:
        """Have what has left a timeline lie nowhere but in the records of its batches; later, where a generation is
        under way that may leave KV of the stream as it was. Nobody else waits for that."""
        if timeline.leaving is None:
            timeline.leaving = Leaving(timeline.fading, self._ends(session))
        if not timeline.leaving.over:
            return
        gone, reached = timeline.leaving.fading.gone, timeline.leaving.fading.reached
        async with self._book.writing(session) as state:
            oldest = min(state.feed.ordinals, default=state.feed.ingested + 1)
            # Data that a rewind set aside and no record put back may leave in another order.
            in_order = oldest > gone
            await self._renew_snapshot(state, reached if in_order else state.events)
            stream = pack(state.tokens)
        await self._forget_kv(session, stream)
        timeline.settled = min(gone, oldest - 1)
        timeline.leaving = None

    def _ends(self, session: int) -> tuple[trio.Event, ...]:
        """Set when the generations have ended that compute KV of the session now."""
        generations = self._room.in_flight.all()
        return tuple(one.ended for one in generations if session in (one.session, one.job.kv_session))

    async def _renew_snapshot(self, state: SessionState, since: int) -> None:
        """A snapshot of fewer than `since` events may hold what has left since: one of now takes its place."""
        events = await self._book.log.ask(lambda log: log.last_snapshot(state.id))
        if 0 < events < since:
            dumped = snapshot.dump(state)
            await self._book.log.rewrite(lambda log: log.renew_snapshot(state.id, state.events, dumped))

    async def _forget_kv(self, session: int, stream: bytes) -> None:
        """Return once there is no KV of the session but of its stream."""
        while not await self._room.orders.forget_strays(session, stream):
            await self._remove(self._parked, session)
            if self._room.worker is None:
                break  # one that comes finds nothing
        await self._remove(self._elsewhere, session)

    async def _remove(self, files: ParkedFiles, session: int) -> None:
        if not await trio.to_thread.run_sync(files.erase, (session,)):
            raise StoreFailed("parked KV could not be removed")

    async def _batches(self, session: int, start: int, stop: int) -> tuple[Event, ...]:
        """The session's batches among the events `start` to `stop - 1`. Raises SessionPurged where one goes that they
        are records of: a purge erases and moves them before the heads say so."""
        began = trio.current_time()
        found: list[Event] = []
        segments = self._book.heads.segments(session, start, stop)
        for segment in segments:
            found += await self._book.log.ask(lambda log, segment=segment: log.batches(segment))  # type: ignore[misc]
        for segment in segments:
            self._book.live(segment.session)
        await trio.sleep((trio.current_time() - began) * REST)
        return tuple(found)

    def _forget(self, session: int | None) -> None:
        if session is not None:
            self._progress.forget(session)
            self._refused.discard(session)


def _batch(event: Event) -> Ingested | Erased:
    assert isinstance(event.body, Ingested | Erased), "the log gave another record for a batch"
    return event.body


def _rest(event: Event, count: int) -> Event | None:
    """What is left of a batch without its first `count` entries; None where that many are erased."""
    body = _batch(event)
    return replace(event, body=fading.erased(body, count)) if count > fading.gone(body) else None


def _chunks(rests: Sequence[Event]) -> Iterator[list[Event]]:
    """`rests`, in pieces for a transaction each."""
    for start in range(0, len(rests), CHUNK):
        yield list(rests[start : start + CHUNK])
