"""Pushing, asking, standing questions and turns at once, as a live feed has them."""

from __future__ import annotations

from contextlib import aclosing

import trio

from superfluid.daemon.feeds.asking import Question
from superfluid.protocol.codes import Finish
from superfluid.protocol.feed_responses import Connected, DataUpdated, FeedNews, FlashReady
from superfluid.protocol.refusals import SessionBusy
from tests.durability.house import fake
from tests.feeds.house import House, ask, assistant, run, system, user
from tests.support.daemon import GREEDY

QUERIES = tuple(f"what of {number}?" for number in range(4))


def _lines(start: int, stop: int) -> tuple[str, ...]:
    return tuple(f"tick {number:03} is worth {number * number}" for number in range(start, stop))


def test_a_live_feed(tmp_path):
    """Every answer is of the version that it says, and the events tell of all in order."""

    async def story(house: House) -> None:
        feeds, flashing = house.cases.feeds, house.cases.flashing
        session = await feeds.open("ticker", 300, True)
        news: list[FeedNews] = []
        over = trio.Event()

        async def follow() -> None:
            async with aclosing(feeds.subscribe(session)) as events:
                async for event in events:
                    news.append(event)

        async def push() -> None:
            for start in range(0, 90, 3):
                feeds.push(session, _lines(start, start + 3))
                await trio.sleep(0.02)
            over.set()

        async def inquire() -> None:
            number = 0
            while not over.is_set():
                number += 1
                _, answer = await ask(house, session, Question(f"is it {number}?", 3, GREEDY))
                versions.append(answer.data_version)
                texts[answer.data_version, number] = answer.text
                await trio.sleep(0.03)

        async def talk() -> None:
            said: list[tuple[int, str]] = []
            while not over.is_set():
                if len(said) % 12 == 0:
                    said = [system(f"be brief, {len(turns)}")]
                said.append(user(f"what is new, after {len(said)}?"))
                try:
                    reply = await house.turn(session, *said, most=5)
                except SessionBusy:
                    said.pop()
                    await trio.sleep(0.002)
                    continue
                said.append(assistant(reply.text))
                turns.append(reply.text)
                await trio.sleep(0.03)

        versions: list[int] = []
        texts: dict[tuple[int, int], str] = {}
        turns: list[str] = []
        async with trio.open_nursery() as following:
            following.start_soon(follow)
            for query in QUERIES:
                await flashing.add(session, query, 5)
            async with trio.open_nursery() as nursery:
                for task in (push, talk):
                    nursery.start_soon(task)
                while not over.is_set():
                    try:
                        await inquire()
                    except SessionBusy:
                        await trio.sleep(0.001)
            await house.settled(session)
            state = await house.fresh(session)

            async def told() -> bool:
                last = {event.id: event.value for event in news if isinstance(event, FlashReady)}
                return last == {id: flash.value for id, flash in state.feed.flashes.items()}

            await house.until(told)
            following.cancel_scope.cancel()
        assert versions == sorted(versions)
        assert turns
        assert state.feed.taken == 90
        assert state.turns == len(turns)
        connected, *rest = news
        assert isinstance(connected, Connected)
        updates = [event.data_version for event in rest if isinstance(event, DataUpdated)]
        assert updates == sorted(set(updates))
        assert updates[-1] == state.feed.version
        known = 0
        values: dict[int, str] = {}
        answered: dict[int, int] = {}
        for event in rest:
            if isinstance(event, DataUpdated):
                known = event.data_version
            elif isinstance(event, FlashReady):
                assert event.data_version <= known, "the data are told of before their answers"
                assert answered.get(event.id, 0) <= event.data_version, "an older answer came after a newer one"
                answered[event.id] = event.data_version
                assert values.get(event.id) != event.value
                values[event.id] = event.value
        assert values == {id: flash.value for id, flash in state.feed.flashes.items()}
        # what the answers say is what asking says
        for flash in state.feed.flashes.values():
            twin = await ask(house, session, Question(flash.query, 5, GREEDY))
            assert (twin[1].flash_id is not None, twin[0]) == (True, flash.value)
            fork = await house.cases.branching.fork(session, state.events, None)
            drawn = (await ask(house, fork, Question(flash.query, 5, GREEDY)))[1]
            assert (drawn.flash_id, drawn.text) == (None, flash.value)
            assert drawn.finish is not Finish.CANCELLED

    run(tmp_path, story, worker_argv=fake(end_every=40))
