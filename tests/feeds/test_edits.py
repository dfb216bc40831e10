"""A feed's history edited: forks, trims and rebases of data, and data in an edited conversation."""

from __future__ import annotations

import pytest

from superfluid.protocol import records
from superfluid.protocol.codes import PurgeMode, Role
from superfluid.protocol.records import Drop, Replace
from superfluid.protocol.refusals import ReplyTooLong
from tests.feeds.house import House, ask, run
from tests.feeds.test_asking import WHAT
from tests.sessions.reference import Reference
from tests.support.daemon import GREEDY


def lines(start, stop):
    return tuple(f"tick {number:04} is worth {number * number}" for number in range(start, stop))


async def fed(house: House, *batches: tuple[str, ...], window: int | None = None, name: str | None = None) -> int:
    session = await house.cases.feeds.open(name, window, False)
    for batch in batches:
        house.cases.feeds.push(session, batch)
        await house.settled(session)
    return session


async def batch_events(house: House, session: int) -> list[int]:
    events = house.book.backlog(session, 0, (await house.state(session)).events)
    return [event.event_id async for event in events if isinstance(event.body, records.Ingested)]


def test_a_batch_left_out_is_as_if_it_had_never_come(tmp_path):
    async def story(house: House):
        batches = [lines(0, 3), lines(3, 5), lines(5, 8)]
        session = await fed(house, *batches)
        events = await batch_events(house, session)
        for gone in range(3):
            edited = await house.cases.branching.rebase(session, (Drop(events[gone], events[gone] + 1),), None)
            plain = await fed(house, *[batch for place, batch in enumerate(batches) if place != gone])
            assert (await house.state(edited)).tokens == (await house.state(plain)).tokens
            assert (await ask(house, edited, WHAT))[0] == (await ask(house, plain, WHAT))[0]
        trimmed = await house.cases.branching.trim(session, events[1])
        plain = await fed(house, batches[0])
        assert (await house.state(trimmed)).tokens == (await house.state(plain)).tokens
        replaced = (Replace(events[0], events[2] + 1, Role.USER, "nothing came"),)
        edited = await house.cases.branching.rebase(session, replaced, None)
        plain = await house.cases.branching.create(None, GREEDY)
        await house.cases.appending.message(plain, Role.USER, "nothing came")
        assert (await house.state(edited)).tokens == (await house.state(plain)).tokens

    run(tmp_path, story)


def test_edits_of_a_talk_over_data(tmp_path):
    async def story(house: House):
        session = await fed(house, lines(0, 2))
        first = (await house.state(session)).events
        await house.cases.appending.message(session, Role.USER, "what came?")
        async with house.cases.generating.generate(session, 5) as generation:
            await generation.ended.wait()
        house.cases.feeds.push(session, lines(2, 4))
        await house.settled(session)
        await house.cases.appending.message(session, Role.USER, "and now?")
        # Without the first batch, the question stands in a turn of its own.
        events = await batch_events(house, session)
        edited = await house.cases.branching.rebase(session, (Drop(events[0], first),), None)
        state = await house.state(edited)
        said = [message.text for message in state.said]
        assert (said[0], said[-1]) == ("what came?", "and now?")
        alone = await house.cases.branching.create(None, GREEDY)
        await house.cases.appending.message(alone, Role.USER, "what came?")
        front = (await house.state(alone)).tokens
        assert state.tokens[: len(front)] == front
        for changed in (edited, session):
            assert Reference(list(await house.book.read(changed, 0))).tokens == list(
                (await house.state(changed)).tokens
            )

    run(tmp_path, story)


def test_a_fork_outlives_the_feed_that_it_came_from(tmp_path):
    async def story(house: House):
        session = await fed(house, *[lines(at, at + 4) for at in range(0, 40, 4)], window=120, name="parent")
        early = await house.cases.branching.fork(session, (await batch_events(house, session))[2] + 1, None)
        before = await house.state(early)
        answer, _ = await ask(house, early, WHAT)
        await house.cases.keeping.purge(session, 0, PurgeMode.REROOT)
        after = await house.state(early)
        assert (after.tokens, after.feed.entries) == (before.tokens, before.feed.entries)
        assert (await ask(house, early, WHAT))[0] == answer
        house.cases.feeds.push(early, lines(90, 95))
        report = await house.settled(early)
        assert report.data_version == before.feed.version + 1
        assert (await house.state(early)).feed.tokens <= 120

    run(tmp_path, story)


@pytest.mark.heavy
def test_a_feed_whose_log_no_frame_holds(tmp_path):
    async def story(house: House):
        entries = tuple(f"{number} " + "word " * 400 for number in range(4000))
        session = await fed(house, lines(0, 3), *[entries] * 9, window=450)
        events = await batch_events(house, session)
        with pytest.raises(ReplyTooLong):
            await house.book.read(session, 0)
        trimmed = await house.cases.branching.trim(session, events[1])
        assert (await house.state(trimmed)).tokens == (await house.state(await fed(house, lines(0, 3)))).tokens
        edited = await house.cases.branching.rebase(session, (Drop(events[0], events[0] + 1),), None)
        assert (await house.state(edited)).feed.taken == 9 * 4000
        fork = await house.cases.branching.fork(session, events[-1] + 1, None)
        before = await house.state(fork)
        await house.cases.keeping.purge(session, 0, PurgeMode.REROOT)
        house.book._states.clear()
        after = await house.state(fork)
        assert (after.tokens, after.feed.entries) == (before.tokens, before.feed.entries)
        house.cases.feeds.push(fork, lines(0, 2))
        assert (await house.settled(fork)).taken == 3 + 9 * 4000 + 2

    run(tmp_path, story)
