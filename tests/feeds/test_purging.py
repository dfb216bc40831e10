"""A purge ends what is asked of the session, and nothing of it is left in the worker."""

from __future__ import annotations

import pytest
import trio

from superfluid.daemon.feeds.asking import Question
from superfluid.daemon.replies.conversing import Turn
from superfluid.protocol.codes import Finish, PurgeMode
from superfluid.protocol.refusals import SessionPurged
from tests.durability.house import fake
from tests.feeds.house import House, ask, run, user
from tests.support.daemon import GREEDY

LINES = tuple(f"tick {number} of the feed is worth {number * number}" for number in range(12))


def test_a_purge_ends_questions_and_evaluations(tmp_path):
    async def story(house: House) -> None:
        session = await house.open(pre_decode=True)
        await house.batch(session, *LINES)
        for number in range(6):
            await house.cases.flashing.add(session, f"what of {number}?", 200)
        ends: list[object] = []

        async def asks() -> None:
            try:
                async with house.cases.asking.ask(session, Question("what?", 700, GREEDY)) as answering:
                    asking.set()
                    async for _ in answering.pieces():
                        pass
                    ends.append(answering.answer.finish)
            except SessionPurged as refusal:
                ends.append(refusal)

        async def warms() -> None:
            try:
                ends.append((await house.cases.turning.warm(session, (Turn(*user("so " * 300)),))).finish)
            except SessionPurged as refusal:
                ends.append(refusal)

        asking = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(warms)

            async def running() -> bool:
                return any(generation.job.started for generation in house.room.in_flight.all())

            await house.until(running)
            nursery.start_soon(asks)
            await asking.wait()
            await house.cases.keeping.purge(session, 0, PurgeMode.REROOT)
            assert not house.book.copies([session]) or not house.room.in_flight.all()
        assert Finish.CANCELLED in ends or any(isinstance(end, SessionPurged) for end in ends)
        await house.quiet()
        assert not house.room.kv
        for call in (
            ask(house, session, Question("what?")),
            house.cases.flashing.add(session, "what?"),
            house.cases.flashing.list(session),
            house.turn(session, user("what?")),
            house.cases.turning.warm(session, (Turn(*user("what?")),)),
        ):
            with pytest.raises(SessionPurged):
                await call
        other = await house.open()
        await house.batch(other, *LINES)
        _, answer = await ask(house, other, Question("what?", 2, GREEDY))
        assert answer.cached_tokens

    run(tmp_path, story, worker_argv=fake(delay_us=300))
