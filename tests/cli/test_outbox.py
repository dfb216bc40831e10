"""What a push keeps and sends again, whatever happens to daemon and connection between two steps."""

import itertools

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from superfluid_cli.push.outbox import BATCH_ENTRIES, MOST_BYTES, Acknowledgement, Outbox, Standing


class Feed:
    """A session as one or more daemons keep it."""

    def __init__(self):
        self.ingested = []
        self.restart()

    def restart(self):
        self.queue = []
        self.latest = {}
        self.run = object()
        self.base = self.total = len(self.ingested)

    def push(self, batch):
        first, accepted = self.latest.get(batch.sender, (None, None))
        if first == batch.first:
            return accepted
        self.take(batch.entries)
        said = Acknowledgement(len(batch.entries), 0, len(self.queue), self.total, 0, 0, len(self.ingested))
        self.latest[batch.sender] = batch.first, said
        return said

    def take(self, entries):
        self.queue += entries
        self.total += len(entries)

    def ingest(self, count):
        self.ingested += self.queue[:count]
        del self.queue[:count]

    def standing(self):
        return Standing(len(self.ingested), self.total, 0, id(self.run), self.base)


class Pushing(RuleBasedStateMachine):
    """One producer, whose connection breaks at any point and whose daemon dies at any point."""

    def __init__(self):
        super().__init__()
        self.feed = Feed()
        self.runs = [self.feed.run]  # kept: an id is used again once its object is gone
        self.outbox = Outbox()
        self.outbox.connect(self.feed.standing())
        self.connected = True
        self.numbers = itertools.count()
        self.added = []

    @rule(count=st.integers(1, 5))
    def add(self, count):
        for number in itertools.islice(self.numbers, count):
            self.outbox.add(f"{number}")
            self.added.append(f"{number}")

    @precondition(lambda self: self.connected and self.outbox.unsent)
    @rule(arrives=st.booleans(), answered=st.booleans())
    def push(self, arrives, answered):
        batch = self.outbox.batch()
        said = self.feed.push(batch) if arrives or answered else None
        if answered:
            self.outbox.acknowledge(said)
        else:
            self.connected = False

    @rule(count=st.integers(1, 9))
    def ingest(self, count):
        self.feed.ingest(count)

    @precondition(lambda self: self.connected)
    @rule()
    def look(self):
        self.outbox.look(self.feed.standing())

    @rule()
    def die(self):
        self.feed.restart()
        self.runs.append(self.feed.run)
        self.connected = False

    @rule()
    def break_off(self):
        self.connected = False

    @precondition(lambda self: not self.connected)
    @rule()
    def connect(self):
        self.outbox.connect(self.feed.standing())
        self.connected = True

    @invariant()
    def nothing_is_lost_twice_or_out_of_order(self):
        self.check(self.feed.ingested + self.feed.queue)

    def check(self, there):
        assert there == self.added[: len(there)]
        assert len(self.feed.ingested) + len(self.outbox) >= len(self.added)

    def teardown(self):
        if not self.connected:
            self.connect()
        while self.outbox.unsent:
            self.push(arrives=True, answered=True)
        self.feed.ingest(len(self.feed.queue))
        self.look()
        assert len(self.outbox) == 0
        self.finished()

    def finished(self):
        assert self.feed.ingested == self.added
        assert self.outbox.acknowledged == len(self.added)


class PushingInCompany(Pushing):
    """As before, while somebody else pushes too, of whom nobody knows. What has arrived and was not acknowledged is
    not ingested by a daemon that dies then: its answer is on the way long before."""

    @precondition(lambda self: self.connected)
    @rule()
    def die(self):
        super().die()

    @precondition(lambda self: self.connected)
    @rule(count=st.integers(1, 9))
    def ingest(self, count):
        super().ingest(count)

    @precondition(lambda self: not self.connected)
    @rule()
    def connect(self):
        super().connect()
        if self.outbox.unsent:  # at once, before anything else can happen
            self.push(arrives=True, answered=True)

    @rule(count=st.integers(1, 3))
    def others_push(self, count):
        self.feed.take(["other"] * count)

    def check(self, there):
        super().check([entry for entry in there if entry != "other"])
        ours = [entry for entry in self.feed.ingested if entry != "other"]
        assert len(ours) + len(self.outbox) >= len(self.added)

    def finished(self):
        assert [entry for entry in self.feed.ingested if entry != "other"] == self.added
        assert self.outbox.acknowledged == len(self.added)


TestPushing = Pushing.TestCase
TestPushing.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestPushingInCompany = PushingInCompany.TestCase
TestPushingInCompany.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)


def connected():
    outbox = Outbox()
    outbox.connect(Standing(0, 0, 0, 1, 0))
    return outbox


def test_a_batch_is_bounded():
    outbox = connected()
    for _ in range(BATCH_ENTRIES + 1):
        outbox.add("x")
    assert len(outbox.batch().entries) == BATCH_ENTRIES


def test_one_long_entry_is_a_batch_and_fills_the_box():
    outbox = connected()
    outbox.add("x" * MOST_BYTES)
    outbox.add("y")
    assert outbox.full
    assert outbox.batch().entries == ("x" * MOST_BYTES,)


def test_bytes_are_counted_as_they_are_stored():
    outbox = connected()
    outbox.add("é" * (MOST_BYTES // 2 - 1))
    assert not outbox.full
    outbox.add("")
    assert outbox.full


def test_drops_are_counted_over_a_restart():
    """What a daemon dropped and nobody heard of counts; what it dropped and forgot is sent again and does not."""
    outbox = connected()
    for _ in range(9):
        outbox.add("x")
    outbox.batch()
    outbox.acknowledge(Acknowledgement(9, 2, 7, 9, 2, 0, 1))
    assert outbox.dropped == 2
    outbox.connect(Standing(1, 1, 1, 2, 1))
    assert outbox.dropped == 1
    outbox.look(Standing(4, 9, 4, 2, 1))
    assert outbox.dropped == 4
    outbox.connect(Standing(9, 9, 6, 3, 9))
    assert outbox.dropped == 6


def test_drops_of_a_server_that_does_not_tell():
    outbox = Outbox()
    outbox.connect(Standing(0, 0, None, 1, 0))
    for total in (2, 3):
        outbox.add("x")
        outbox.batch()
        outbox.acknowledge(Acknowledgement(1, 0, 0, 1, total, 0))
    outbox.connect(Standing(0, 0, None, 2, 0))
    for total in (3, 1):
        outbox.batch()
        outbox.acknowledge(Acknowledgement(1, 0, 0, 1, total, 0))
    assert outbox.dropped == 4
