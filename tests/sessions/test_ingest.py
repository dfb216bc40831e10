"""Batches of random feeds: the window holds, every entry is somewhere, and the fold says what was decided."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from superfluid.protocol import records
from superfluid.protocol.codes import Finish, Role
from superfluid.sessions.ingest import Room, decide_batch
from superfluid.sessions.state import SessionState, Tail
from tests.sessions.reference import Reference
from tests.sessions.world import World

ROOM = Room(context=200, reserve=40)
LENGTHS = st.lists(st.integers(0, 30) | st.integers(0, 90), max_size=8)


class Feeds(RuleBasedStateMachine):
    @initialize(window=st.none() | st.integers(1, 120))
    def start(self, window):
        self.world = World()
        self.session = self.world.create().head.id
        self.world.write(self.session, records.FeedOpened(window, False))
        self.window = window
        self.token = iter(range(1, 1 << 30))
        self.pushed = 0
        self.batches = 0
        self.bumps = 0

    @property
    def state(self) -> SessionState:
        return self.world.states[self.session]

    def span(self, length):
        return tuple(next(self.token) for _ in range(length))

    @rule(lengths=LENGTHS, dropped=st.integers(0, 3), lazy=st.booleans())
    def batch(self, lengths, dropped, lazy):
        before = self.state.copy()
        lines = [(f"{place}: {length}", self.span(length)) for place, length in enumerate(lengths)]
        if lazy and self.window is not None:  # what newer entries push out anyway may come without tokens
            total = 0
            for place in reversed(range(len(lines))):
                if total > self.window:
                    lines[place] = (lines[place][0], None)
                total += len(lines[place][1] or ()) * (len(lines[place][1] or ()) <= self.window)
        head = self.span(3) if before.tail is not Tail.DATA else ()
        body = decide_batch(before, lines, dropped, head, ROOM)
        self.world.write(self.session, body)
        self.pushed += len(lines) + dropped
        self.batches += 1
        after = self.state
        assert after.feed.version == before.feed.version + 1
        assert body.dropped + len(body.entries) == len(lines) + dropped
        texts = [entry.text for entry in body.entries]
        assert texts == [text for text, _ in lines if text in texts], "in order"
        if body.entries:
            assert len(after.tokens) <= ROOM.input
            assert body.entries[-1].span, "the newest that fits stays"
        else:
            assert after.tokens == before.tokens
        if before.tokens and not body.evicted:
            assert after.tokens[: len(before.tokens)] == before.tokens
        self.full_enough(before, body)

    def full_enough(self, before, body):
        """Evictions stop at nine tenths, or go on only as far as whole entries make them."""
        held = [length for _, length in before.feed.entries]
        if 0 < body.evicted < len(held) and self.window is not None:
            kept = self.state.feed.tokens
            room = min(self.window, ROOM.input - (len(self.state.tokens) - kept))
            assert kept <= room
            assert (kept + held[body.evicted - 1]) * 10 > room * 9

    @rule(length=st.integers(1, 6))
    def say(self, length):
        if len(self.state.tokens) < ROOM.input:
            self.world.write(self.session, records.Message(Role.USER, "u", self.span(length)))

    @rule(finish=st.sampled_from([Finish.END_OF_TURN, Finish.CANCELLED]))
    def reply(self, finish):
        if len(self.state.tokens) < ROOM.input and self.state.tail in (Tail.TURN, Tail.DATA):
            reply = records.Generated(self.span(4), "a", 0, finish)
            self.world.write(self.session, records.GenerationPrompt(self.span(2)), reply)

    @rule(data=st.data())
    def edit(self, data):
        keep = data.draw(st.integers(0, len(self.state.said)))
        version = self.state.feed.version + 1
        self.world.write(self.session, records.Rewound(keep, version), records.Restored(self.span(3)))
        self.bumps += 1

    @rule(data=st.data())
    def fork(self, data):
        """A fork knows what its parent knew then, and goes on from there."""
        at = data.draw(st.integers(1, self.state.events))
        then = self.world.fold(self.session, at)
        fork = self.world.states[self.world.fork(self.session, at).head.id]
        assert fork.tokens == then.tokens
        assert fork.said == then.said
        assert (fork.feed.entries, fork.feed.version, fork.feed.taken) == (
            then.feed.entries,
            then.feed.version,
            then.feed.taken,
        )

    @invariant()
    def every_entry_is_somewhere(self):
        feed = self.state.feed
        assert feed.taken == self.pushed
        assert feed.version == self.batches + self.bumps
        assert feed.dropped + feed.evicted + len(feed.entries) == self.pushed
        assert not feed.detached
        if self.window is not None:
            assert feed.tokens <= self.window
        expected = Reference(self.world.timelines[self.session])
        assert list(self.state.tokens) == expected.tokens
        assert feed.entries == expected.entries


Feeds.TestCase.settings = settings(max_examples=60, stateful_step_count=25)
test_feeds = Feeds.TestCase


def feed(window, *lengths):
    world = World()
    session = world.create().head.id
    world.write(session, records.FeedOpened(window, False))
    state = world.states[session]
    if lengths:
        world.write(session, decide_batch(state, lines(*lengths), 0, (9, 9), ROOM))
    return state


def lines(*lengths):
    return [(f"{place}:{length}", (place + 1,) * length) for place, length in enumerate(lengths)]


@pytest.mark.parametrize(
    ("window", "held", "new", "evicted", "spans", "dropped"),
    [
        (100, (50, 40), (10,), 0, [10], 0),
        (100, (50, 40), (11,), 1, [11], 0),
        (100, (10, 10, 40, 40), (1,), 2, [1], 0),
        (100, (10, 10, 40, 40), (99,), 4, [99], 0),
        (100, (10,), (100,), 1, [100], 0),
        (100, (10,), (101, 5), 0, [5], 1),
        (100, (), (60, 60, 30), 1, [0, 60, 30], 0),
        (100, (30,), (0,), 0, [], 1),
        (None, (50,), (100, 9, 8, 7), 0, [100, 8], 2),
        (None, (), (), 0, [], 0),
    ],
)
def test_what_leaves_and_what_stays(window, held, new, evicted, spans, dropped):
    body = decide_batch(feed(window, *held), lines(*new), 0, () if held else (9, 9), ROOM)
    assert ([len(entry.span) for entry in body.entries], body.evicted, body.dropped) == (spans, evicted, dropped)


def test_a_conversation_that_fills_the_context_leaves_the_data_less_than_their_window():
    world = World()
    session = world.create().head.id
    world.write(session, records.FeedOpened(120, False), records.Message(Role.USER, "u", (1,) * 100))
    state = world.states[session]
    world.write(session, decide_batch(state, lines(30, 20), 0, (9, 9), ROOM))
    world.write(session, decide_batch(state, lines(20), 0, (), ROOM))
    assert len(state.tokens) <= ROOM.input
    assert [length for _, length in state.feed.entries] == [20, 20]
    assert decide_batch(state, lines(100), 0, (), ROOM).dropped == 1


def test_what_nobody_looked_at_leaves_also_where_the_context_is_tighter_than_the_window():
    world = World()
    session = world.create().head.id
    world.write(session, records.FeedOpened(100, False), records.Message(Role.USER, "u", (1,) * 98))
    unseen = [("unseen", None), ("too long", (5,) * 70), ("new", (6,) * 31)]
    body = decide_batch(world.states[session], unseen, 0, (9, 9), ROOM)
    assert body.entries == (records.Entry("unseen", ()), records.Entry("new", (6,) * 31))
    assert (body.evicted, body.dropped) == (1, 1)
