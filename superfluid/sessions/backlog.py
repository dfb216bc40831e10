"""The entries that were pushed into a session and are not ingested yet (decisions 20, 31).

Never refuses and never grows past its bounds: the oldest entries make room, and are counted. Every entry that was
ever pushed has an ordinal, from 1; those up to `taken` are decided about for good, ingested or dropped, durably.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

MOST_ENTRIES = 4096
MOST_BYTES = 8 << 20
"""UTF-8 bytes of the entries and a line end each; one entry alone may not take more either."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Everything that was pending, oldest first, and how many were dropped since the batch before it."""

    entries: tuple[str, ...]
    dropped: int
    last: int
    """the ordinal of the last entry that this decides about"""


class Backlog:
    """One session's queue. `taken` and `dropped` are what its log says when it is made."""

    def __init__(
        self, taken: int, dropped: int, *, most_entries: int = MOST_ENTRIES, most_bytes: int = MOST_BYTES
    ) -> None:
        self._most_entries = most_entries
        self._most_bytes = most_bytes
        self.base = taken
        self.total_pushed = taken
        self.total_dropped = dropped
        self.pending_bytes = 0
        self._entries: deque[str] = deque()
        self._sizes: deque[int] = deque()
        self._dropped = 0
        """dropped since the last batch"""

    @property
    def pending(self) -> int:
        return len(self._entries)

    @property
    def has_work(self) -> bool:
        """Whether a batch is due; one that only says what was dropped counts too."""
        return bool(self._entries or self._dropped)

    def push(self, entries: Sequence[str]) -> int:
        """Queue `entries`; how many were dropped for it, of these or of older ones."""
        before = self._dropped
        first = self._first_kept(entries)
        # Entries so many that they push each other out are counted without being looked at one by one.
        self.total_pushed += first
        self._dropped += first
        for entry in entries[first:] if first else entries:
            self._push(entry)
        gone = self._dropped - before
        self.total_dropped += gone
        return gone

    def fit(self, entries: Sequence[str]) -> int:
        """How many of `entries` can be queued before an entry is dropped for another one."""
        count, size = len(self._entries), self.pending_bytes
        for place, entry in enumerate(entries):
            one = _size(entry)
            if one <= self._most_bytes:  # else it is dropped for itself
                count, size = count + 1, size + one
            if count > self._most_entries or size > self._most_bytes:
                return place
        return len(entries)

    def _first_kept(self, entries: Sequence[str]) -> int:
        """The place of the first of `entries` that those behind it do not push out by their number."""
        room, place = self._most_entries, len(entries)
        if place <= room:
            return 0
        while room and place:
            place -= 1
            room -= _size(entries[place]) <= self._most_bytes
        return place

    def _push(self, entry: str) -> None:
        self.total_pushed += 1
        size = _size(entry)
        if size > self._most_bytes:
            self._dropped += 1
            return
        while len(self._entries) >= self._most_entries or self.pending_bytes + size > self._most_bytes:
            self._entries.popleft()
            self.pending_bytes -= self._sizes.popleft()
            self._dropped += 1
        self._entries.append(entry)
        self._sizes.append(size)
        self.pending_bytes += size

    def take(self) -> Batch:
        """Everything; nothing is pending then."""
        batch = Batch(tuple(self._entries), self._dropped, self.total_pushed)
        self._entries.clear()
        self._sizes.clear()
        self.pending_bytes = self._dropped = 0
        return batch

    def lose(self, dropped: int) -> None:
        """So many entries of a batch were dropped when it was ingested."""
        self.total_dropped += dropped


def _size(entry: str) -> int:
    """UTF-8 bytes, with a line end."""
    return len(entry.encode()) + 1
