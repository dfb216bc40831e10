"""Data, questions, turns and appends on one session at the same time: whatever comes between, the log is whole, and
every token was drawn over just the input that the log says it had."""

from __future__ import annotations

import random

import pytest
import trio

from superfluid.daemon.feeds.asking import Question
from superfluid.engine.fake_model import FakeModel
from superfluid.protocol import records
from superfluid.protocol.codes import Role
from superfluid.protocol.refusals import OverWindow, SessionBusy
from superfluid.sessions.state import SessionState
from tests.feeds.house import House, ask, assistant, run, user
from tests.sessions.reference import Reference
from tests.support.daemon import FAKE, GREEDY

FAKE_MODEL = FakeModel(end_every=12)


class Life:
    """What happens to one session, by several hands with dice of their own."""

    def __init__(self, house: House, session: int, seed: int) -> None:
        self.house = house
        self.session = session
        self.seed = seed
        self.pushed: list[str] = []
        self.said: list[tuple[int, str]] = []
        self.done = False

    def dice(self, hand: str) -> random.Random:
        return random.Random(f"{self.seed} {hand}")

    async def push(self) -> None:
        dice = self.dice("push")
        for _ in range(40):
            lines = [f"{len(self.pushed) + n}: {'x ' * dice.randrange(12)}" for n in range(dice.randrange(1, 7))]
            self.house.cases.feeds.push(self.session, tuple(lines))
            self.pushed += lines
            await trio.sleep(dice.choice([0, 0, 0.002, 0.02]))
        self.done = True

    async def ask(self) -> None:
        dice = self.dice("ask")
        while not self.done:
            question = Question(f"what of {dice.randrange(9)}?", max_tokens=dice.randrange(1, 6), params=GREEDY)
            try:
                await ask(self.house, self.session, question)
            except (SessionBusy, OverWindow):
                pass
            await trio.sleep(dice.choice([0.001, 0.01, 0.03]))

    async def turn(self) -> None:
        dice = self.dice("turn")
        while not self.done:
            if self.said and dice.random() < 0.2:  # go back and say something else
                del self.said[2 * dice.randrange(len(self.said) // 2) :]
            self.said.append(user(f"say {dice.randrange(100)}"))
            try:
                reply = await self.house.turn(self.session, *self.said, most=dice.randrange(1, 8))
            except (SessionBusy, OverWindow):
                self.said.pop()
            else:
                self.said.append(assistant(reply.text))
            await trio.sleep(dice.choice([0.001, 0.02]))

    async def append(self) -> None:
        dice = self.dice("append")
        while not self.done:
            try:
                await self.house.cases.appending.append(self.session, "raw ", ())
            except SessionBusy:
                pass
            await trio.sleep(dice.choice([0.02, 0.05]))


HEAVY = [
    pytest.param(seed, engine, lanes, marks=pytest.mark.heavy)
    for seed, engine, lanes in [
        (3, "", 4),
        (4, "", 1),
        (5, "window=48,", 4),
        (6, "recurrent=1,", 4),
        (7, "recurrent=1,", 1),
    ]
]


@pytest.mark.parametrize(("seed", "engine", "lanes"), [(1, "", 4), (2, "window=48,", 2), *HEAVY])
def test_a_busy_feed(tmp_path, seed, engine, lanes):
    async def story(house: House):
        session = await house.cases.feeds.open("busy", 160, True)
        await house.cases.flashing.add(session, "what now?", 4)
        life = Life(house, session, seed)
        async with trio.open_nursery() as nursery:
            for hand in (life.push, life.ask, life.turn, life.append):
                nursery.start_soon(hand)
        report = await house.settled(session)
        assert (await house.fresh(session)).feed.flashes[1].value is not None
        events = await house.book.read(session, 0)
        batches = [event.body for event in events if isinstance(event.body, records.Ingested)]
        assert [entry.text for batch in batches for entry in batch.entries] == life.pushed
        assert (report.taken, report.total_dropped) == (len(life.pushed), 0)
        versions = [e.body.version for e in events if isinstance(e.body, records.Ingested | records.Rewound)]
        assert versions == sorted(versions)
        state = SessionState(session)
        for event in events:
            if isinstance(event.body, records.Generated):
                seen = list(state.tokens)
                for token in event.body.span:
                    assert token == FAKE_MODEL.oracle(seen, None), (
                        f"event {event.event_id} was drawn over other input"
                    )
                    seen.append(token)
            state.apply(event)
            assert state.feed.tokens <= 160
        assert state == await house.state(session)
        assert list(state.tokens) == Reference(list(events)).tokens
        assert any(event.body.evicted for event in events if isinstance(event.body, records.Ingested))
        assert sum(message.role == Role.ASSISTANT for message in state.said) > 0

    argv = (*FAKE, f"{engine}delay_us=100,end_every=12")
    run(tmp_path, story, worker_argv=argv, max_context=2048, max_batch=lanes)
