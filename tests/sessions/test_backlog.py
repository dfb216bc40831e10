"""The queue of a feed: bounds that are never passed, and numbers that always add up."""

from collections.abc import Sequence

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from superfluid.sessions.backlog import MOST_BYTES, MOST_ENTRIES, Backlog

ENTRY = st.text(st.sampled_from("aä€😀"), max_size=12)
ENTRIES, BYTES = 5, 40


class Queue(RuleBasedStateMachine):
    @initialize(taken=st.integers(0, 9), dropped=st.integers(0, 9))
    def start(self, taken, dropped):
        self.backlog = Backlog(taken, dropped, most_entries=ENTRIES, most_bytes=BYTES)
        self.waiting = []
        """(ordinal, entry)"""
        self.ordinal, self.gone, self.untold = taken, dropped, 0
        self.decided = taken

    @rule(entries=st.lists(ENTRY, max_size=8))
    def push(self, entries):
        dropped = 0
        for entry in entries:
            self.ordinal += 1
            if len(entry.encode()) + 1 > BYTES:
                dropped += 1
                continue
            self.waiting.append((self.ordinal, entry))
            while len(self.waiting) > ENTRIES or sum(len(e.encode()) + 1 for _, e in self.waiting) > BYTES:
                self.waiting.pop(0)
                dropped += 1
        assert self.backlog.push(entries) == dropped
        self.gone += dropped
        self.untold += dropped

    @rule(lost=st.integers(0, 3))
    def take(self, lost):
        batch = self.backlog.take()
        assert batch.entries == tuple(entry for _, entry in self.waiting)
        assert batch.dropped == self.untold
        assert self.decided + len(batch.entries) + batch.dropped == self.ordinal == batch.last
        lost = min(lost, len(batch.entries))
        self.backlog.lose(lost)
        self.gone += lost
        self.decided, self.waiting, self.untold = self.ordinal, [], 0

    @invariant()
    def the_numbers_add_up(self):
        backlog = self.backlog
        assert backlog.pending == len(self.waiting) <= ENTRIES
        assert backlog.pending_bytes == sum(len(e.encode()) + 1 for _, e in self.waiting) <= BYTES
        assert (backlog.total_pushed, backlog.total_dropped) == (self.ordinal, self.gone)
        assert backlog.has_work == bool(self.waiting or self.untold)


test_queue = Queue.TestCase


def test_the_bounds_of_a_session():
    backlog = Backlog(0, 0)
    assert (MOST_ENTRIES, MOST_BYTES) == (4096, 8 << 20)
    assert backlog.push(["x"] * 4096) == 0
    assert backlog.push(["x"]) == 1
    assert backlog.push(["y" * (MOST_BYTES - 1)]) == 4096
    assert (backlog.pending, backlog.pending_bytes) == (1, MOST_BYTES)
    assert backlog.push(["y" * MOST_BYTES]) == 1
    assert backlog.push([""]) == 1
    assert (backlog.pending, backlog.pending_bytes) == (1, 1)


def test_what_fits_drops_nothing():
    for entries in (["b", "c", "d"], ["four", "c"], ["too long, this one", "b", "c", "d"], ["fifth..", "x"], []):
        room = Backlog(0, 0, most_entries=3, most_bytes=9)
        room.push(["a"])
        fit = room.fit(entries)
        dropped = room.push(entries[:fit])
        assert dropped == sum(len(entry) > 8 for entry in entries[:fit])
        assert fit == len(entries) or room.push(entries[fit : fit + 1]) == 1, "not one more"


def test_a_flood_is_not_looked_at_one_by_one():
    """Only the last ones are kept, so only they are."""
    backlog = Backlog(0, 0)
    backlog.push(["old"])
    flood = Flood(10_000_000)
    assert backlog.push(flood) == 10_000_001 - MOST_ENTRIES
    assert flood.looks <= 3 * MOST_ENTRIES
    assert (backlog.pending, backlog.total_pushed) == (MOST_ENTRIES, 10_000_001)
    assert backlog.take().entries[0] == str(10_000_000 - MOST_ENTRIES)


class Flood(Sequence):
    """So many entries, each its own place, that counts who looks at them."""

    def __init__(self, length):
        self.length, self.looks = length, 0

    def __len__(self):
        return self.length

    def __getitem__(self, place):
        if isinstance(place, slice):
            return [self[one] for one in range(*place.indices(self.length))]
        if not 0 <= place < self.length:
            raise IndexError(place)
        self.looks += 1
        return str(place)
