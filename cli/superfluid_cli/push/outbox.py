"""What is on its way into a session: every entry is kept until it is known to be ingested (design decision 31)."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass

MOST_ENTRIES = 2048
MOST_BYTES = 4 << 20
"""What is kept at most; a session queues twice as much, so that nothing of ours drops anything of ours there."""

BATCH_ENTRIES = 1024
BATCH_BYTES = 1 << 20
"""What one push takes at most, unless a single entry is longer."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Entries to push. Their `sender` numbers them, `first` is the number of the first: so a daemon that has them
    already, the answer having been lost, knows them again."""

    entries: tuple[str, ...]
    sender: int
    first: int


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """What a daemon says to a push: `pushed` entries are accepted, the last one with the ordinal `total_pushed`.

    `taken` is None where it does not tell (see `superfluid.protocol`, Pushed).
    """

    pushed: int
    dropped: int
    pending: int
    total_pushed: int
    total_dropped: int
    data_version: int
    taken: int | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a session stands. `run` tells daemons apart and `base` is where this one began to count, if it tells.

    `total_dropped` is None where it does not tell.
    """

    taken: int
    total_pushed: int
    total_dropped: int | None
    run: int
    base: int


class Outbox:
    """Entries in order: the acknowledged ones first, each with its ordinal, then those in flight, then the rest."""

    def __init__(self) -> None:
        self._kept: deque[str] = deque()
        self._bytes = 0
        self._ordinals: deque[int] = deque()
        self._sender = random.getrandbits(53)
        self._gone = 0
        """entries that were kept, and are known to be ingested"""
        self._in_flight = 0
        self._standing: Standing | None = None
        self._total = 0
        self._alone = True
        self.acknowledged = 0
        """Entries that were acknowledged, those that had to be sent again counted once."""
        self.dropped = 0
        """Entries that the session dropped meanwhile: too long, no room, or pushed out of its queue."""
        self._dropped_before = 0

    def __len__(self) -> int:
        """How many are not known to be ingested."""
        return len(self._kept)

    @property
    def full(self) -> bool:
        return len(self._kept) >= MOST_ENTRIES or self._bytes >= MOST_BYTES

    @property
    def unsent(self) -> int:
        """How many are not acknowledged."""
        return len(self._kept) - len(self._ordinals)

    def undelivered(self, connected: bool) -> list[str]:
        """The entries that are not acknowledged; without a daemon, whose queue is gone, all that are kept."""
        return list(self._kept)[len(self._ordinals) if connected else 0 :]

    def add(self, entry: str) -> None:
        self._kept.append(entry)
        self._bytes += _size(entry)

    def batch(self) -> Batch:
        """The entries to push next, which are in flight from now on: those that were already, where they were."""
        batch: list[str] = []
        size = 0
        most = self._in_flight or BATCH_ENTRIES
        for place in range(len(self._ordinals), len(self._kept)):
            size += _size(self._kept[place])
            if batch and (size > BATCH_BYTES or len(batch) == most):
                break
            batch.append(self._kept[place])
        self._in_flight = len(batch)
        return Batch(tuple(batch), self._sender, self._gone + len(self._ordinals))

    def acknowledge(self, said: Acknowledgement) -> None:
        """The batch in flight has been accepted, or as much of it as there was room for, or as was in flight when its
        answer was lost."""
        first = said.total_pushed - said.pushed + 1
        self._alone = self._alone and first == self._total + 1
        self._number(first, said.total_pushed)
        self._count_dropped(said.total_dropped)
        if said.taken is not None:
            self._take(said.taken)

    def look(self, standing: Standing) -> None:
        """Let go of what the session has ingested since."""
        if standing.total_dropped is not None:
            self._count_dropped(standing.total_dropped)
        self._take(standing.taken)

    def _take(self, taken: int) -> None:
        while self._ordinals and self._ordinals[0] <= taken:
            self._ordinals.popleft()
            self._bytes -= _size(self._kept.popleft())
            self._gone += 1

    def connect(self, standing: Standing) -> None:
        """A connection begins: find out what of the entries the daemon has, and send the others again.

        A batch in flight when the last one broke may have arrived: it is sent again, and the same daemon takes it in
        once. Another one, whose queue is empty, is asked for the totals, as long as nobody else pushes. What cannot
        be told: whether somebody else's entries were ingested by a daemon that came and went while this was not
        connected.
        """
        last, self._standing = self._standing, standing
        if standing.total_dropped is not None and (last is None or standing.run != last.run):
            self._count_again(standing.total_dropped, first=last is None)
        if last is None:
            self._total = standing.total_pushed
        elif standing.run != last.run:
            self._lose(standing.base)
        ours = (self._total, self._total + self._in_flight)
        self._alone = self._alone and standing.total_pushed in ours
        self.look(standing)

    def _lose(self, base: int) -> None:
        """Another daemon has come: what the one before had beyond `base` is to be sent again."""
        if self._in_flight and self._alone:
            self._number(self._total + 1, self._total + self._in_flight)
        self._take(base)
        self.acknowledged -= len(self._ordinals)
        self._ordinals.clear()
        self._in_flight = 0
        self._total = base

    def _count_dropped(self, total: int) -> None:
        """A total below the last one is that of a server that has begun again without a word."""
        self.dropped += total - self._dropped_before if total >= self._dropped_before else total
        self._dropped_before = total

    def _count_again(self, total: int, *, first: bool) -> None:
        """A daemon tells what is dropped for good: more than was heard of, or less where entries are sent again."""
        if not first:
            self.dropped = max(0, self.dropped + total - self._dropped_before)
        self._dropped_before = total

    def _number(self, first: int, last: int) -> None:
        self._ordinals.extend(range(first, last + 1))
        self.acknowledged += last - first + 1
        self._in_flight = 0
        self._total = last


def _size(entry: str) -> int:
    """Bytes, with the separator that a session stores with it."""
    return len(entry.encode()) + 1
