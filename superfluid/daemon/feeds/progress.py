"""How far erasing has come with the data of each session: in memory and, for the next daemon, in the log."""

from __future__ import annotations

from dataclasses import dataclass, field

import trio

from superfluid.daemon.book import Book
from superfluid.protocol import postcard
from superfluid.protocol.errors import DecodeError
from superfluid.protocol.refusals import StoreFailed
from superfluid.protocol.wire import U64
from superfluid.sessions.fading import Fading

FACT = "erasing "
"""Under this and a session's id the log holds how far its data is done: no start begins at the first event again."""


@dataclass(frozen=True, slots=True)
class Leaving:
    """What had left a stream at some moment, and the ends of the generations that were under way on it then."""

    fading: Fading
    ends: tuple[trio.Event, ...]

    @property
    def over(self) -> bool:
        """Whether nobody is left who may leave KV of the stream as it was before."""
        return all(end.is_set() for end in self.ends)


@dataclass(slots=True)
class Timeline:
    """A session's data, as far as it was looked at. Of the first `settled` entries, records are all that is left."""

    fading: Fading = field(default_factory=Fading)
    settled: int = 0
    leaving: Leaving | None = None
    """what will be settled next"""


@dataclass(slots=True)
class Sweep:
    """A session's own records, from `own_from` on, are done up to `event`, before which its timeline has `ingested`
    entries; but for the batches in `left`, which forks still need, each with the number of entries before it."""

    own_from: int
    event: int
    ingested: int
    left: dict[int, int] = field(default_factory=dict)
    limits: tuple[tuple[int, int], ...] = ()
    """what it was done for"""


@dataclass(frozen=True, slots=True)
class _Note:
    """A timeline and, where there is one, a sweep: up to the first batch that forks still need."""

    reached: U64
    ingested: U64
    gone: U64
    settled: U64
    sweep: tuple[U64, U64, U64] | None
    """`own_from`, `event` and `ingested`"""


class Progress:
    """The timelines and sweeps of all sessions that were looked at."""

    def __init__(self, book: Book) -> None:
        self._book = book
        self.timelines: dict[int, Timeline] = {}
        self.sweeps: dict[int, Sweep] = {}
        self._notes: dict[int, bytes] = {}
        """what the log holds under `FACT`"""
        self._untidy = True
        """whether the log may hold notes of sessions that were purged"""

    async def recall(self, session: int) -> None:
        """Begin where an earlier daemon has come to. Raises StoreFailed."""
        fact = await self._book.log.ask(lambda log: log.fact(f"{FACT}{session}"))
        try:
            note: _Note | None = None if fact is None else postcard.decode(_Note, fact)
        except DecodeError:
            note = None  # begin at the first event
        if fact is None or note is None:
            self.timelines[session] = Timeline()
            return
        self._notes[session] = fact
        self.timelines[session] = Timeline(Fading(note.reached, note.ingested, note.gone), note.settled)
        if note.sweep is not None:
            self.sweeps[session] = Sweep(*note.sweep)

    async def note(self, session: int) -> None:
        """Have the next daemon begin here. Raises StoreFailed."""
        timeline, sweep = self.timelines.get(session), self.sweeps.get(session)
        if timeline is None:
            return  # purged meanwhile
        done = None
        if sweep is not None:
            first = min(sweep.left.items(), default=(sweep.event, sweep.ingested))
            done = (sweep.own_from, *first)
        at = timeline.fading
        note = _Note(at.reached, at.ingested, at.gone, timeline.settled, done)
        fact = postcard.encode(_Note, note)
        if self._notes.get(session) != fact:
            await self._book.log.tell(lambda log: log.set_fact(f"{FACT}{session}", fact))
            self._notes[session] = fact

    def forget(self, session: int) -> None:
        """The session was purged."""
        self.timelines.pop(session, None)
        self.sweeps.pop(session, None)
        self._notes.pop(session, None)
        self._untidy = True

    async def tidy(self) -> None:
        """Remove the notes of sessions that were purged, also while an earlier daemon ran."""
        if not self._untidy:
            return
        self._untidy = False
        try:
            names = await self._book.log.ask(lambda log: log.fact_names(FACT))
            over = [name for name in names if self._is_over(name.removeprefix(FACT))]
            if over:
                await self._book.log.tell(lambda log: log.drop_facts(over))
        except StoreFailed:
            self._untidy = True  # the next one tries again

    def _is_over(self, session: str) -> bool:
        head = self._book.heads.any(int(session)) if session.isdecimal() else None
        return head is None or head.purged
