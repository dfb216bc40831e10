"""Purges of sessions that are damaged: what cannot be read can be erased all the same."""

from __future__ import annotations

import pytest
import trio

from superfluid.protocol.codes import PurgeMode
from superfluid.protocol.records import Appended
from superfluid.protocol.refusals import PurgeConflict, SessionDamaged, SessionPurged
from tests.daemon.still import Still
from tests.support.daemon import GREEDY

SECRET = "a heron among the reeds"


async def written(still: Still) -> int:
    """A session of four events, of which the third cannot be read."""
    session = await still.branching.create(None, GREEDY)
    async with still.book.writing(session) as state:
        await still.book.commit_one(state, *[Appended(f"{SECRET} {number}", (5, 6)) for number in range(3)])
    return session


def spoil(still: Still, session: int) -> None:
    """As a start finds it."""
    still.log._writer.execute(
        "UPDATE records SET digest = x'0102030405060708' WHERE session = ? AND event = 2", (session,)
    )
    still.book._states.clear()


@pytest.mark.parametrize("mode", PurgeMode)
def test_a_damaged_session_can_be_purged(log, tmp_path, mode):
    async def story() -> None:
        still = Still(log)
        session = await written(still)
        spoil(still, session)
        with pytest.raises(SessionDamaged):
            await still.book.now(session)
        with pytest.raises(PurgeConflict):
            await still.keeping.purge(session, 1, mode)
        assert await still.keeping.purge(session, 0, mode) == (session,)
        with pytest.raises(SessionPurged):
            still.book.live(session)
        head = await still.book.log.ask(lambda log: log.head(session))
        assert head == still.book.heads.any(session)
        assert (head.purged, head.generation, head.events) == (True, 1, 5)
        assert not any(SECRET.encode() in file.read_bytes() for file in tmp_path.iterdir())

    trio.run(story)


def test_a_fork_of_what_is_whole_outlives_it(log):
    async def story() -> None:
        still = Still(log)
        session = await written(still)
        child = await still.branching.fork(session, 2, None)
        spoil(still, session)
        await still.keeping.purge(session, 0, PurgeMode.REROOT)
        events = await still.book.read(child, 0)
        assert [getattr(event.body, "text", None) for event in events[:2]] == [None, f"{SECRET} 0"]
        assert (await still.book.now(child)).tokens.tolist() == [5, 6]

    trio.run(story)


def test_a_fork_that_has_the_damage_keeps_its_parent(log):
    async def story() -> None:
        still = Still(log)
        session = await written(still)
        child = await still.branching.fork(session, 4, None)
        spoil(still, session)
        with pytest.raises(SessionDamaged):
            await still.keeping.purge(session, 0, PurgeMode.REROOT)
        assert len(await still.book.read(session, 0, 2)) == 2
        assert await still.keeping.purge(session, 0, PurgeMode.CASCADE) == (child, session)

    trio.run(story)
