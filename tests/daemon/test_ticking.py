"""Ticks while the log stands still, and a worker that dies meanwhile."""

from __future__ import annotations

import trio.testing

from superfluid.daemon.engine.generation import Generation
from superfluid.protocol.codes import Qos
from superfluid.protocol.records import Appended, Generated, span_of
from superfluid.protocol.ticks import LaneOptions
from superfluid.scheduler.planning import ROUNDS
from tests.feeds.house import House, run
from tests.support.daemon import GREEDY

QUIET = 0.5
"""Seconds without anything that happens, after which nothing will: a tick of the fake takes a few milliseconds."""


async def _begun(house: House) -> Generation:
    """A generation that goes on for longer than anybody waits."""
    session = await house.cases.branching.create(None, GREEDY)
    async with house.book.writing(session) as state:
        await house.book.commit_one(state, Appended("a heron among the reeds", (5, 6)))
    generation = house.cases.generating.admit(
        await house.state(session), 400, Qos.AGENT, LaneOptions(ignore_end=True)
    )
    await generation.deltas.receive()
    return generation


async def _logged(house: House, session: int) -> int:
    """How many drawn tokens of the session are in the log."""
    events = await house.book.read(session, 0)
    return sum(len(span_of(event.body)) for event in events if isinstance(event.body, Generated))


def test_a_worker_whose_log_stands_still_owes_nothing(tmp_path):
    async def story(house: House) -> None:
        generation = await _begun(house)
        async with house.book.writing(generation.session, even_fenced=True):  # no commit of it goes on
            await trio.testing.wait_all_tasks_blocked(QUIET)
            ticking, worker = house.room._ticking, house.room.worker
            assert worker is not None
            assert not ticking._owed_by(worker)  # or it would be taken to hang
            assert 3 <= house.room.schedule.ticks < 400 // ROUNDS  # nor does it run ahead
        await generation.ended.wait()
        assert await _logged(house, generation.session) == 400

    run(tmp_path, story)


def test_what_a_worker_told_before_its_death_is_kept_however_late_the_log_takes_it(tmp_path):
    async def story(house: House) -> None:
        generation = await _begun(house)
        async with house.book.writing(generation.session, even_fenced=True):
            await trio.testing.wait_all_tasks_blocked(QUIET)
            ticks = house.room.schedule.ticks
            assert house.room.worker is not None
            house.room.worker.kill()
            await trio.testing.wait_all_tasks_blocked(QUIET)
        await generation.ended.wait()
        assert generation.refusal is not None
        assert await _logged(house, generation.session) == ticks * ROUNDS

    run(tmp_path, story)
