"""Sessions that nobody uses: their KV leaves memory, their data never."""

from __future__ import annotations

import pytest

from superfluid.daemon.feeds.asking import Question
from superfluid.daemon.feeds.idling import Idling
from superfluid.protocol.ticks import ON_DISK
from tests.feeds.house import NOW, House, ask, run
from tests.support.daemon import GREEDY

HOUR = 3600.0
WHAT = Question("what?", max_tokens=3, params=GREEDY)


@pytest.mark.parametrize("park", [False, True])
def test_the_kv_of_a_session_that_nobody_uses_leaves_memory(tmp_path, park):
    async def story(house: House):
        feeds = house.cases.feeds
        idling = Idling(house.book, house.room, feeds, HOUR)
        idle, used, followed = [await feeds.open(name, None, False) for name in ("idle", "used", "followed")]
        for session in (idle, used, followed):
            feeds.push(session, [f"tick {number} of {session} is worth {number * number}" for number in range(10)])
            await house.settled(session)
        following = feeds.subscribe(followed)
        await anext(following)
        text, _ = await ask(house, idle, WHAT)
        tokens = (await feeds.report(idle)).tokens
        idling.look()
        assert await cost(house, idle) < tokens // 2, "it was used just now"
        house.book._clock = lambda: NOW + 3_601_000
        feeds.touch(used)
        idling.look()
        assert await cost(house, used) < tokens // 2
        assert await cost(house, followed) < tokens // 2
        place = house.room.kv.get(idle)
        assert (place is not None and place.tier == ON_DISK) == park
        before = house.computed
        again, _ = await ask(house, idle, WHAT)
        assert again == text
        assert (house.computed - before > tokens // 2) == (not park)
        assert (await feeds.report(idle)).data_version == 1
        await following.aclose()

    async def cost(house, session):
        before = house.computed
        await ask(house, session, WHAT)
        return house.computed - before

    run(tmp_path, story, park=park)


@pytest.mark.parametrize("park", [False, True])
def test_where_the_kv_went_is_told_though_nothing_runs(tmp_path, park):
    async def story(house: House):
        idle = await house.cases.feeds.open("idle", None, False)
        house.cases.feeds.push(idle, ["tick"])
        await house.settled(idle)
        await house.quiet()
        ticks = house.room.schedule.ticks
        house.book._clock = lambda: NOW + 3_601_000
        Idling(house.book, house.room, house.cases.feeds, HOUR).look()

        async def told() -> bool:
            place = house.room.kv.get(idle)
            return place is not None and place.tier == ON_DISK if park else place is None

        await house.until(told)
        assert house.room.schedule.ticks == ticks

    run(tmp_path, story, park=park)
