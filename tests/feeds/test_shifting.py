"""A window that moves on costs what comes in, not what it holds."""

from __future__ import annotations

from tests.feeds.house import House, run
from tests.feeds.test_ingesting import lines
from tests.support.daemon import FAKE


async def moved_on(house: House) -> tuple[int, int]:
    """Lines go into a small window, a few at a time: how many tokens came in, and how many were computed."""
    session = await house.cases.feeds.open("window", 200, False)
    for start in range(0, 140, 7):
        house.cases.feeds.push(session, lines(start, start + 7))
        report = await house.settled(session)
        await house.quiet()
        assert report.kv_tokens == report.tokens
    assert report.evicted > 100
    return (await house.state(session)).ever, house.computed


def test_what_stays_is_not_computed_again(tmp_path):
    async def story(house: House):
        came, computed = await moved_on(house)
        assert computed == came

    run(tmp_path, story)


def test_where_nothing_can_be_moved_it_is(tmp_path):
    async def story(house: House):
        came, computed = await moved_on(house)
        assert computed > 2 * came

    run(tmp_path, story, worker_argv=(*FAKE[:-1], "--fake=recurrent=1"))
