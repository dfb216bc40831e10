"""Ingesting while things go wrong: a worker that dies, decodes that fail, a disk that is full."""

from __future__ import annotations

import psutil
import trio

from superfluid.engine.fake_model import FakeModel
from superfluid.protocol import records
from tests.durability.house import fake
from tests.feeds.house import House, run


def lines(start, stop):
    return tuple(f"tick {number:04} is worth {number * number}" for number in range(start, stop))


async def texts(house: House, session: int) -> list[str]:
    batches = [e.body for e in await house.book.read(session, 0) if isinstance(e.body, records.Ingested)]
    return [entry.text for batch in batches for entry in batch.entries]


async def draws_right(house: House, session: int) -> bool:
    """Whether a reply is drawn over just the session's input."""
    seen = list((await house.state(session)).tokens)
    async with house.cases.generating.generate(session, 5) as generation:
        await generation.ended.wait()
    events = [event.body for event in await house.book.read(session, 0)]
    drawn = [token for body in events if isinstance(body, records.Generated) for token in body.span]
    seen += next(body.span for body in reversed(events) if isinstance(body, records.GenerationPrompt))
    for token in drawn:
        if token != FakeModel().oracle(seen, None):
            return False
        seen.append(token)
    return len(drawn) == 5


def test_a_worker_that_dies_while_a_batch_is_computed(tmp_path):
    async def story(house: House):
        session = await house.cases.feeds.open("unlucky", 400, False)
        for start in range(0, 60, 20):
            house.cases.feeds.push(session, lines(start, start + 20))

            async def computing() -> bool:
                return any(g.job.kv_session == session and g.job.started for g in house.room.in_flight.all())

            await house.until(computing)
            for worker in psutil.Process().children():
                worker.kill()
            report = await house.settled(session)
            assert report.data_version == start // 20 + 1
        assert house.room.respawns == 3
        assert await texts(house, session) == list(lines(0, 60))
        assert report.kv_tokens == report.tokens
        assert await draws_right(house, session)

    run(tmp_path, story, worker_argv=fake(delay_us=1000))


def test_decodes_that_fail_now_and_then(tmp_path):
    async def story(house: House):
        session = await house.cases.feeds.open("flaky", 200, False)
        for start in range(0, 60, 4):
            house.cases.feeds.push(session, lines(start, start + 4))
            await house.settled(session)
        assert await texts(house, session) == list(lines(0, 60))
        assert (await house.cases.feeds.report(session)).total_dropped == 0

    run(tmp_path, story, worker_argv=fake(fail_every=2))


def test_a_full_disk_loses_nothing_that_waits(tmp_path):
    async def story(house: House):
        session = await house.cases.feeds.open("full", 300, False)
        house.cases.feeds.push(session, lines(0, 3))
        await house.settled(session)
        database = house.book.log._log._writer
        (pages,) = database.execute("PRAGMA page_count").fetchone()
        database.execute(f"PRAGMA max_page_count = {pages}")
        house.cases.feeds.push(session, lines(3, 1500))
        with trio.move_on_after(1.5):
            await house.settled(session)
            raise AssertionError("the disk is full")
        house.cases.feeds.push(session, lines(1500, 1510))
        report = await house.cases.feeds.report(session)
        assert (report.data_version, report.taken, report.pending) == (1, 3, 10)
        database.execute("PRAGMA max_page_count = 1000000")
        report = await house.settled(session)
        assert (report.data_version, report.taken, report.total_dropped) == (3, 1510, 0)
        assert await texts(house, session) == list(lines(0, 1510))
        assert await draws_right(house, session)

    run(tmp_path, story)


def test_a_version_that_was_only_foretold_is_taken_back(tmp_path):
    """Else whoever waits for a later one would take what was lost for ingested."""
    foretold = []

    async def dies(house: House):
        feeds = house.cases.feeds
        session = await feeds.open("feed", 300, False)
        database = house.book.log._log._writer
        (pages,) = database.execute("PRAGMA page_count").fetchone()
        database.execute(f"PRAGMA max_page_count = {pages}")
        feeds.push(session, lines(0, 1500))

        async def under_way() -> bool:
            return house.cases.ingesting.under_way(session) and not house.room.in_flight.all()

        await house.until(under_way)
        ack, report = feeds.push(session, lines(1500, 1501)), await feeds.report(session)
        assert (ack.taken, report.taken, report.data_version) == (0, 0, 0)
        foretold.append(ack.data_version)

    async def goes_on(house: House):
        feeds = house.cases.feeds
        session = feeds.resolve("feed")
        report = await feeds.report(session)
        assert (report.data_version, report.taken, report.pending) == (0, 0, 0)
        feeds.push(session, lines(2000, 2001))
        assert [(await house.settled(session)).data_version] == foretold, "not later than that"

    run(tmp_path, dies)
    run(tmp_path, goes_on)


def test_a_worker_that_dies_under_a_session_that_has_outgrown_its_window(tmp_path):
    async def story(house: House):
        session = await house.cases.feeds.open("large", None, True)
        house.cases.feeds.push(session, lines(0, 3))
        await house.settled(session)
        await house.fresh(session)
        await house.cases.appending.append(session, None, tuple(range(5, 25)) * 100)
        assert session in house.room.kv
        for worker in psutil.Process().children():
            worker.kill()

        async def again() -> bool:
            return house.room.respawns == 1 and house.room.worker is not None and not house.cases.evaluating._cold

        await house.until(again)
        await house.quiet()
        other = await house.open()
        await house.batch(other, *lines(0, 3))
        assert await draws_right(house, other)

    run(tmp_path, story)
