"""Pushed entries become data: what is where after a batch, and what is counted."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from superfluid.daemon.feeds.asking import Question
from superfluid.daemon.replies.conversing import Ask, Turn
from superfluid.protocol import records
from superfluid.protocol.codes import PurgeMode, Role
from superfluid.protocol.feed_refusals import BadName, BadWindow, NameTaken, TooManyLive, UnknownName
from superfluid.protocol.feed_responses import Connected, DataUpdated, FlashReady
from superfluid.protocol.refusals import SessionBusy, SessionPurged, UnknownSession
from superfluid.sessions.state import Tail
from tests.feeds.house import House, run, user
from tests.support.daemon import FAKE, GREEDY


def lines(start, stop):
    return tuple(f"tick {number:04} is worth {number * number}" for number in range(start, stop))


async def ingested(house, session):
    """Every batch in the log, in order."""
    return [e.body for e in await house.book.read(session, 0) if isinstance(e.body, records.Ingested)]


def texts(batches):
    return [entry.text for batch in batches for entry in batch.entries]


def test_a_push_is_acknowledged_at_once_and_becomes_data(tmp_path):
    async def story(house: House):
        session = await house.cases.feeds.open("ticker-feed", None, False)
        ack = house.cases.feeds.push(session, ("AAPL 231.10 +0.4%", "MSFT 415.22 -0.1%"))
        assert (ack.pushed, ack.dropped, ack.pending, ack.pending_bytes) == (2, 0, 2, 36)
        assert (ack.total_pushed, ack.total_dropped, ack.data_version, ack.taken) == (2, 0, 0, 0)
        report = await house.settled(session)
        assert (report.pending, report.data_version, report.taken, report.total_pushed) == (0, 1, 2, 2)
        assert report.data_end == report.tokens == report.kv_tokens > 10
        assert (report.name, report.evicted, report.window, report.turns) == ("ticker-feed", 0, None, 0)
        state = await house.state(session)
        assert state.tail is Tail.DATA
        assert report.frozen_end == state.feed.entries[0][0]
        (batch,) = await ingested(house, session)
        assert texts([batch]) == ["AAPL 231.10 +0.4%", "MSFT 415.22 -0.1%"]
        house.cases.feeds.push(session, lines(0, 3))
        report = await house.settled(session)
        assert (report.data_version, report.taken) == (2, 5)
        _, batch = await ingested(house, session)
        assert batch.head == ()
        assert house.computed == report.tokens, "nothing is computed twice"

    run(tmp_path, story)


def test_a_window_is_never_exceeded_and_old_entries_leave_it(tmp_path):
    async def story(house: House):
        session = await house.cases.feeds.open(None, 200, False)
        pushed = []
        for start in range(0, 120, 7):
            pushed += lines(start, start + 7)
            house.cases.feeds.push(session, lines(start, start + 7))
            report = await house.settled(session)
            state = await house.state(session)
            assert state.feed.tokens <= 200
            assert report.kv_tokens == report.tokens
            assert report.evicted + len(state.feed.entries) == len(pushed)
            assert house.computed == state.ever, "what stays is not computed again"
        assert report.evicted > 50
        assert report.name.startswith("sess_")
        assert texts(await ingested(house, session)) == pushed, "what was evicted is there to read"
        spans = await house.cases.conversing.model.lines(pushed[-len(state.feed.entries) :])
        assert [tuple(state.tokens[at : at + length]) for at, length in state.feed.entries] == list(spans)

    run(tmp_path, story)


def test_more_than_a_window_at_once_is_not_computed(tmp_path):
    async def story(house: House):
        session = await house.cases.feeds.open("burst", 300, False)
        house.cases.feeds.push(session, lines(0, 2000))
        report = await house.settled(session)
        assert (report.data_version, report.taken, report.total_dropped) == (1, 2000, 0)
        assert house.computed <= 400
        state = await house.state(session)
        assert report.evicted + len(state.feed.entries) == 2000
        assert 200 < state.feed.tokens <= 300
        (batch,) = await ingested(house, session)
        assert texts([batch]) == list(lines(0, 2000))

    run(tmp_path, story)


def test_what_does_not_fit_is_dropped_and_counted(tmp_path):
    async def story(house: House):
        feeds = house.cases.feeds
        windowed = await feeds.open("windowed", 100, False)
        feeds.push(windowed, ("short", "long " * 200, "short again"))
        report = await house.settled(windowed)
        assert (report.total_dropped, report.evicted, report.data_version, report.taken) == (1, 0, 1, 3)
        assert texts(await ingested(house, windowed)) == ["short", "short again"]

        growing = await feeds.open("growing", None, False)
        feeds.push(growing, lines(0, 400))
        report = await house.settled(growing)
        state = await house.state(growing)
        assert report.tokens <= 1024 - 512
        assert report.total_dropped == 400 - len(state.feed.entries) > 300
        dropped, version = report.total_dropped, report.data_version
        feeds.push(growing, lines(400, 405))
        report = await house.settled(growing)
        assert report.total_dropped + len((await house.state(growing)).feed.entries) == 405
        assert report.total_dropped > dropped
        assert report.data_version == version + 1, "also where nothing fits"

    run(tmp_path, story)


def test_kv_is_there_again_after_a_batch_that_is_dropped_whole(tmp_path):
    async def story(house: House):
        feeds = house.cases.feeds
        session = await feeds.open("full", None, False)
        feeds.push(session, lines(0, 400))
        await house.settled(session)
        await house.room.orders.forget([session])
        before = await feeds.report(session)
        assert before.kv_tokens == 0
        feeds.push(session, ("long " * 600,))
        report = await house.covered(session)
        assert (report.total_dropped, report.data_version) == (before.total_dropped + 1, before.data_version + 1)

    run(tmp_path, story)


def test_kv_of_what_was_pushed_is_there_again_for_who_waits_after_a_warming(tmp_path):
    async def story(house: House):
        feeds = house.cases.feeds
        session = await feeds.open("warmed", None, False)
        feeds.push(session, lines(0, 3))
        await house.settled(session)
        await house.turn(session, user("What is it worth, and why is that so? " * 4))
        before = await feeds.report(session)
        assert before.kv_tokens + 1 >= before.tokens
        await house.cases.turning.warm(session, (Turn(int(Role.USER), "Hm?"),))
        assert house.room.kv[session].covered + 1 < before.tokens
        assert (await house.covered(session)).tokens == before.tokens

    run(tmp_path, story)


def test_what_fits_is_found_behind_any_number_that_do_not(tmp_path):
    async def story(house: House):
        feeds = house.cases.feeds
        growing = await feeds.open("growing", None, False)
        feeds.push(growing, lines(0, 30))
        await house.settled(growing)
        feeds.push(growing, (*["long " * 120] * 200, "short"))
        report = await house.settled(growing)
        assert report.total_dropped == 200
        assert texts(await ingested(house, growing)) == [*lines(0, 30), "short"]

        # a conversation leaves the data less than their window
        windowed = await feeds.open("windowed", 500, False)
        await house.cases.appending.message(windowed, Role.USER, "long " * 150)
        feeds.push(windowed, ("short", *["long " * 400] * 80))
        report = await house.settled(windowed)
        assert (report.total_dropped, report.evicted) == (80, 0)
        assert texts(await ingested(house, windowed)) == ["short"]

    run(tmp_path, story)


def test_the_queue_drops_its_oldest_and_never_refuses(tmp_path):
    async def story(house: House):
        feeds = house.cases.feeds
        session = await feeds.open("queue", 200, False)
        ack = feeds.push(session, tuple(str(n) for n in range(5000)))
        assert (ack.pushed, ack.dropped, ack.pending, ack.total_pushed) == (5000, 904, 4096, 5000)
        ack = feeds.push(session, ("x" * (5 << 20), "y" * (5 << 20), "z" * (9 << 20), "last"))
        assert ack.dropped == 4096 + 2
        assert ack.pending_bytes == (5 << 20) + 1 + 5
        report = await house.settled(session)
        assert (report.taken, report.total_pushed, report.total_dropped) == (5004, 5004, 904 + 4098 + 1)
        assert texts(await ingested(house, session)) == ["last"]

    run(tmp_path, story)


def test_a_batch_waits_for_a_generation_and_for_a_tool_call(tmp_path):
    async def story(house: House):
        feeds = house.cases.feeds
        session = await feeds.open("busy", None, False)
        await house.cases.appending.message(session, Role.USER, "go on for long")
        async with house.cases.generating.generate(session, 60) as generation:
            feeds.push(session, lines(0, 2))
            async for _ in generation.deltas:
                if not generation.ended.is_set():
                    assert (await feeds.report(session)).busy
        await house.settled(session)
        events = [event.body for event in await house.book.read(session, 0)]
        assert isinstance(events[-1], records.Ingested)
        async with house.book.writing(session) as state:
            call = await house.book.commit_one(state, records.ToolUse("f", "{}"))
        feeds.push(session, lines(2, 4))
        for _ in range(50):
            await trio.lowlevel.checkpoint()
        report = await feeds.report(session)
        assert (report.data_version, report.pending) == (1, 2)
        await house.cases.tooling.outcome(session, call.event_id, 1, "no")
        report = await house.settled(session)
        assert report.data_version == 2
        assert texts(await ingested(house, session)) == list(lines(0, 4))

    run(tmp_path, story)


def test_a_turn_that_comes_while_a_batch_is_computed_goes_first(tmp_path):
    async def story(house: House):
        feeds = house.cases.feeds
        session = await feeds.open("slow", 500, False)
        feeds.push(session, lines(0, 30))

        async def computing() -> bool:
            return any(generation.job.kv_session == session for generation in house.room.in_flight.all())

        await house.until(computing)
        assert (await feeds.report(session)).pending == 0
        reply = await house.turn(session, user("what is there?"))
        report = await house.settled(session)
        events = [event.body for event in await house.book.read(session, 0)]
        kinds = [type(body) for body in events]
        assert kinds.index(records.Generated) < kinds.index(records.Ingested)
        assert (report.data_version, report.turns) == (1, 1)
        assert reply.text
        assert report.kv_tokens == report.tokens

    run(tmp_path, story, worker_argv=(*FAKE, "delay_us=2000"))


def test_a_question_late_in_a_long_batch_goes_first_too(tmp_path):
    async def story(house: House):
        house.cases.ingesting.patience = 1.0
        feeds = house.cases.feeds
        session = await feeds.open("long", None, False)
        feeds.push(session, lines(0, 30))

        def computing() -> bool:
            return any(generation.job.kv_session == session for generation in house.room.in_flight.all())

        async def begun() -> bool:
            return computing()

        await house.until(begun)
        await trio.sleep(1.2)  # longer than questions may hold a batch up, none of which has come yet
        assert computing()
        async with house.cases.asking.ask(session, Question("what?", 3, GREEDY)) as answering:
            async for _ in answering.pieces():
                assert not computing()
        assert (await house.settled(session)).taken == 30

    run(tmp_path, story, worker_argv=(*FAKE, "delay_us=8000"))


def test_turns_without_a_pause_hold_up_data_for_a_time_only(tmp_path):
    async def story(house: House):
        house.cases.ingesting.patience = 0.5
        feeds = house.cases.feeds
        session = await feeds.open("never-quiet", None, False)
        await house.cases.appending.message(session, Role.USER, "go on")
        feeds.push(session, lines(0, 20))
        turns = 0
        while not (await feeds.report(session)).taken:
            async with house.cases.generating.generate(session, 2) as generation:
                await generation.ended.wait()
            turns += 1
        state = await house.state(session)
        assert turns > 3
        assert len(state.feed.entries) == 20

    run(tmp_path, story, worker_argv=(*FAKE, "delay_us=5000"))


def test_a_fork_at_an_early_event_knows_what_was_known_then(tmp_path):
    async def story(house: House):
        feeds = house.cases.feeds
        session = await feeds.open("parent", 150, False)
        states = {}
        for start in range(0, 60, 6):
            feeds.push(session, lines(start, start + 6))
            await house.settled(session)
            state = await house.state(session)
            states[state.events] = state
        for at, state in states.items():
            fork = await house.state(await house.cases.branching.fork(session, at, None))
            assert fork.tokens == state.tokens
            assert (fork.feed.entries, fork.feed.version) == (state.feed.entries, state.feed.version)
            assert (fork.feed.name, fork.feed.window) == (None, 150)
        early = (await house.state(await house.cases.branching.fork(session, min(states), None))).id
        feeds.push(early, lines(90, 92))
        report = await house.settled(early)
        assert (report.taken, report.total_pushed, report.data_version) == (8, 8, 2)
        assert (await house.state(session)).tokens == states[max(states)].tokens

    run(tmp_path, story)


def test_names(tmp_path):
    async def story(house: House):
        feeds = house.cases.feeds
        first = await feeds.open("a-feed_1", 10, True)
        assert feeds.resolve("a-feed_1") == feeds.resolve(str(first)) == first
        for bad in ("", "1234", "a b", "ä", "x" * 129, "a/b"):
            with pytest.raises(BadName):
                await feeds.open(bad, None, False)
        with pytest.raises(NameTaken):
            await feeds.open("a-feed_1", None, False)
        for window in (0, 1024 - 512, 1 << 40):
            with pytest.raises(BadWindow):
                await feeds.open("w", window, False)
        plain = await house.cases.branching.create(None, GREEDY)
        with pytest.raises(UnknownName):
            feeds.resolve("other")
        with pytest.raises(UnknownSession):
            feeds.resolve("99")
        with pytest.raises(NameTaken):
            await feeds.name(plain, "a-feed_1")
        assert feeds.ids() == (first,)
        await feeds.name(plain, "other")
        assert feeds.ids() == (first, plain)
        await feeds.name(first, "renamed")
        await feeds.name(first, "renamed")
        with pytest.raises(UnknownName):
            feeds.resolve("a-feed_1")
        with pytest.raises(TooManyLive, match="permits at most 2 live"):
            await feeds.open("third", None, False)
        await feeds.delete(plain)
        assert feeds.ids() == (first,)
        async with trio.open_nursery() as nursery, house.book.writing(first):
            nursery.start_soon(feeds.name, first, "again")  # it waits for the session, and makes none more
            await trio.testing.wait_all_tasks_blocked()
            assert await feeds.open("other", None, False) > plain
        assert feeds.resolve("again") == first

    run(tmp_path, story, live_sessions=2)


def test_a_deleted_session_is_gone_with_what_was_pending(tmp_path):
    async def story(house: House):
        feeds = house.cases.feeds
        session = await feeds.open("gone", 400, False)
        feeds.push(session, lines(0, 3))
        await house.settled(session)
        fork = await house.cases.branching.fork(session, (await house.state(session)).events, None)
        events = [event async for event in _until_end(feeds.subscribe(session), feeds, session)]
        assert [type(event) for event in events] == [Connected]
        with pytest.raises(SessionPurged):
            feeds.push(session, ("x",))
        with pytest.raises(UnknownName):
            feeds.resolve("gone")
        assert session not in house.room.kv
        assert len((await house.state(fork)).feed.entries) == 3
        feeds.push(fork, lines(3, 4))
        assert (await house.settled(fork)).taken == 4

    async def _until_end(following, feeds, session):
        async for event in following:
            yield event
            feeds.push(session, lines(0, 20))
            await feeds.delete(session)

    run(tmp_path, story, worker_argv=(*FAKE, "delay_us=1000"))


def test_delete_is_refused_while_a_request_is_in_flight(tmp_path):
    async def story(house: House):
        session = await house.cases.feeds.open("held", None, False)
        ask = Ask(GREEDY, (Turn(Role.USER, "hello"),), max_tokens=40)
        async with house.cases.turning.reply(session, ask):
            with pytest.raises(SessionBusy):
                await house.cases.feeds.delete(session)
        await house.cases.feeds.delete(session)

    run(tmp_path, story)


def test_a_follower_hears_of_batches_and_answers_in_order(tmp_path):
    async def story(house: House):
        feeds = house.cases.feeds
        house.cases.evaluating.tell = feeds._events.publish
        session = await feeds.open("told", None, False)
        feeds.push(session, lines(0, 1))
        await house.settled(session)
        await house.cases.flashing.add(session, "what?", 4)
        await house.fresh(session)
        heard = []
        async with trio.open_nursery() as nursery:

            async def follow():
                async for event in feeds.subscribe(session):
                    heard.append(event)

            nursery.start_soon(follow)
            await house.until(lambda: _has(heard, 2))
            for start in (1, 2):
                feeds.push(session, lines(start, start + 1))
                await house.settled(session)
                await house.fresh(session)
            nursery.cancel_scope.cancel()
        state = await house.state(session)
        assert heard[0] == Connected(session, "told", 1, 1)
        assert [type(event) for event in heard[1:3]] == [FlashReady, DataUpdated]
        versions = [event.data_version for event in heard[1:]]
        assert versions == sorted(versions)
        updates = [event for event in heard if isinstance(event, DataUpdated)]
        assert [event.data_version for event in updates] == [2, 3]
        assert updates[-1] == DataUpdated(3, len(state.tokens), 0)

    async def _has(heard, count):
        return len(heard) >= count

    run(tmp_path, story)


def test_a_follower_that_lags_is_ended(tmp_path):
    async def story(house: House):
        feeds = house.cases.feeds
        session = await feeds.open("lag", 50, False)
        following = feeds.subscribe(session)
        assert isinstance(await anext(following), Connected)
        for number in range(70):
            feeds.push(session, lines(number, number + 1))
            await house.settled(session)
        heard = [event async for event in following]
        assert [event.data_version for event in heard] == list(range(1, 65))

    run(tmp_path, story)


def test_purging_through_the_session_api_frees_the_name(tmp_path):
    async def story(house: House):
        feeds = house.cases.feeds
        session = await feeds.open("both", None, False)
        await house.cases.keeping.purge(session, 0, PurgeMode.CASCADE)
        assert await feeds.open("both", None, False) != session

    run(tmp_path, story)
