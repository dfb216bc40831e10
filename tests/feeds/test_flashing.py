"""Flash queries: answered in the background after every change, and then for nothing."""

from __future__ import annotations

from contextlib import aclosing

import pytest
import trio

from superfluid.daemon.feeds.asking import Question
from superfluid.daemon.feeds.evaluating import position
from superfluid.daemon.feeds.flashing import MOST
from superfluid.protocol.codes import Finish, Role
from superfluid.protocol.feed_refusals import FlashExists, TooManyFlashes, UnknownFlash
from superfluid.protocol.feed_responses import FlashReady
from superfluid.protocol.records import FlashAnswered
from superfluid.protocol.refusals import OverWindow, ProtocolRefusal
from tests.durability.house import fake
from tests.feeds.house import House, ask, assistant, run, user
from tests.support.daemon import GREEDY

LINES = tuple(f"tick {number} of the feed is worth {number * number}" for number in range(24))
QUERY = "which one?"


def _question(prompt: str, **options) -> Question:
    return Question(prompt, **{"max_tokens": 8, "params": GREEDY, **options})


async def _answers(house: House, session: int) -> list[FlashAnswered]:
    return [e.body for e in await house.book.read(session, 0) if isinstance(e.body, FlashAnswered)]


def test_a_query_is_answered_after_every_batch(tmp_path):
    async def story(house: House) -> None:
        session = await house.open()
        added = await house.cases.flashing.add(session, QUERY, 8)
        assert (added.id, added.max_tokens, added.fresh, added.value) == (1, 8, False, None)
        assert added.tokens == len(house.cases.conversing.model.plain_now(QUERY))
        await house.quiet()
        assert not await _answers(house, session), "there is nothing to answer from"
        values = []
        for round in range(3):
            await house.batch(session, *LINES[round * 4 : round * 4 + 4])
            _, drawn = await ask(house, session, _question(QUERY, qos=0))
            state = await house.fresh(session)
            (entry,), version = await house.cases.flashing.list(session)
            assert entry.fresh
            assert entry.data_version == version == state.feed.version == round + 1
            assert entry.value == drawn.text, "it is the answer that asking gives"
            assert entry.evaluated_at == 1_700_000_000
            values.append(entry.value)
            before = house.computed, await house.state(session)
            _, hit = await ask(house, session, _question(QUERY, max_tokens=1, stops=("a",)))
            assert (hit.text, hit.flash_id, hit.confidence) == (entry.value, 1, entry.confidence)
            assert (hit.prompt_tokens, hit.completion_tokens, hit.finish) == (0, 0, Finish.END_OF_TURN)
            assert hit.data_version == version
            assert (house.computed, await house.state(session)) == before
            _, other = await ask(house, session, _question(QUERY + " "))
            assert other.flash_id is None, "only the exact prompt hits"
        assert len(set(values)) == 3
        assert [(news.id, news.value, news.data_version) for _, news in house.told] == [
            (1, value, version) for version, value in enumerate(values, 1)
        ]
        assert house.room.metrics.flash_hits == 3

    run(tmp_path, story)


def test_an_answer_that_stays_the_same_is_not_told_again(tmp_path):
    async def story(house: House) -> None:
        session = await house.open()
        await house.batch(session, *LINES[:3])
        await house.cases.flashing.add(session, QUERY, 1)
        await house.fresh(session)
        await house.batch(session, *LINES[3:6])
        state = await house.fresh(session)
        assert [answer.data_version for answer in await _answers(house, session)] == [1, 2]
        assert state.feed.flashes[1].value == ""
        assert len(house.told) == 1

    run(tmp_path, story, worker_argv=fake(end_every=1))


def test_twenty_queries_compute_twenty_questions(tmp_path):
    async def story(house: House) -> None:
        session = await house.open()
        await house.batch(session, *LINES)
        context = len((await house.state(session)).tokens)
        assert context > 256
        queries = [f"what of {number}?" for number in range(MOST)]
        own = 0
        for query in queries:
            await house.cases.flashing.add(session, query, 4)
            own += (await ask(house, session, _question(query + "!", max_tokens=1)))[1].prompt_tokens
        await house.fresh(session)
        for _ in range(2):
            before = house.computed
            await house.batch(session, LINES[0])
            state = await house.fresh(session)
            batch = 20
            assert house.computed - before < own + batch + 2 * MOST < 2 * context
        answers = await _answers(house, session)
        assert len({state.feed.flashes[id].value for id in range(1, MOST + 1)}) == MOST
        assert sorted(answer.id for answer in answers[-MOST:]) == list(range(1, MOST + 1))
        assert set(house.room.kv) == {session}, "no query keeps KV"
        with pytest.raises(TooManyFlashes, match="at most 20"):
            await house.cases.flashing.add(session, "one more?", 4)

    run(tmp_path, story)


def test_what_newer_data_overtakes_is_dropped(tmp_path):
    async def story(house: House) -> None:
        session = await house.open()
        await house.batch(session, *LINES[:4])
        for number in range(6):
            await house.cases.flashing.add(session, f"{QUERY} {number}", 64)
        for line in LINES[4:10]:
            await house.batch(session, line)
        state = await house.fresh(session)
        assert state.feed.version == 7
        at: dict[int, int] = {}
        for event in await house.book.read(session, 0):
            if isinstance(event.body, FlashAnswered):
                assert event.body.data_version > at.get(event.body.id, 0), "one answer for a version at the most"
                at[event.body.id] = event.body.data_version
        assert set(at.values()) == {7}

    run(tmp_path, story, worker_argv=fake(delay_us=200))


def test_data_that_never_pause_are_answered_over(tmp_path):
    """Every answer says which data it is over, and the last one is over all."""

    async def story(house: House) -> None:
        session = await house.cases.feeds.open("endless", 400, False)
        await house.cases.flashing.add(session, QUERY, 64)
        pushed = 0
        while len(await _answers(house, session)) < 2:
            house.cases.feeds.push(session, [f"tick {pushed} is worth {pushed * pushed}"])
            pushed += 1
            await trio.sleep(0.05)
        await house.settled(session)
        state = await house.fresh(session)
        versions = [answer.data_version for answer in await _answers(house, session)]
        assert versions == sorted(set(versions))
        assert versions[-1] == state.feed.version > versions[0]

    run(tmp_path, story, worker_argv=fake(delay_us=3000))


def test_no_query_is_forgotten_where_turns_leave_time_for_a_few(tmp_path):
    """What a turn overtook comes first afterwards; with time enough, queries are answered in their order."""

    async def story(house: House) -> None:
        session = await house.open()
        await house.batch(session, *LINES[:4])
        for number in range(6):
            await house.cases.flashing.add(session, f"{QUERY} {number}", 20)
        await house.fresh(session)
        told = len(await _answers(house, session))
        said: list[tuple[int, str]] = []
        for number in range(6):
            before = len(await _answers(house, session))
            said.append(user(f"say {number}"))
            said.append(assistant((await house.turn(session, *said, most=2)).text))

            async def one_more(before: int = before) -> bool:
                return len(await _answers(house, session)) > before

            await house.until(one_more)
        assert {answer.id for answer in (await _answers(house, session))[told:]} == set(range(1, 7))
        await house.fresh(session)
        told = len(await _answers(house, session))
        await house.batch(session, LINES[5])
        await house.fresh(session)
        assert [answer.id for answer in (await _answers(house, session))[told:]] == list(range(1, 7))

    run(tmp_path, story, worker_argv=fake(delay_us=1000), max_batch=1)


def test_a_chat_turn_makes_answers_stale_and_has_them_given_again(tmp_path):
    async def story(house: House) -> None:
        session = await house.open(pre_decode=True)
        await house.batch(session, *LINES[:4])
        await house.cases.flashing.add(session, QUERY, 4)
        before = await house.fresh(session)
        ready = house.cases.evaluating.ready(before)
        await house.turn(session, user("hello"))
        state = await house.state(session)
        assert state.feed.version == before.feed.version
        after = await house.fresh(session)
        assert after.feed.flashes[1].value != before.feed.flashes[1].value
        assert house.cases.evaluating.ready(after) not in (None, ready)
        assert house.cases.evaluating.ready(before) is None
        assert len(await _answers(house, session)) == 2

    run(tmp_path, story)


def test_what_comes_over_the_session_api_counts_too(tmp_path):
    async def story(house: House) -> None:
        session = await house.open()
        await house.batch(session, *LINES[:4])
        await house.cases.flashing.add(session, QUERY, 4)
        values = {(await house.fresh(session)).feed.flashes[1].value}
        await house.cases.appending.message(session, Role.USER, "hello")
        values.add((await house.fresh(session)).feed.flashes[1].value)
        async with house.cases.generating.generate(session, 40) as generation:
            await generation.ended.wait()
        values.add((await house.fresh(session)).feed.flashes[1].value)
        assert len(values) == 3
        assert len(await _answers(house, session)) == 3, "not after every piece of a reply"

    run(tmp_path, story)


def test_queries_are_registered_once_and_removed_for_good(tmp_path):
    async def story(house: House) -> None:
        flashing = house.cases.flashing
        session, other = await house.open(), await house.open()
        await house.batch(session, *LINES[:4])
        one = await flashing.add(session, QUERY, 0)
        two = await flashing.add(session, QUERY + "?", 1000)
        assert (one.id, one.max_tokens, two.id, two.max_tokens) == (1, 1, 2, 256)
        assert (await flashing.add(session, "short?")).max_tokens == 32
        assert await flashing.remove(session, 3) == 2
        with pytest.raises(FlashExists):
            await flashing.add(session, QUERY, 9)
        assert (await flashing.add(other, QUERY)).id == 1
        with pytest.raises(ProtocolRefusal, match="empty"):
            await flashing.add(session, "")
        for far in ("far " * 2000, "far" * 3_000_000):
            with pytest.raises(OverWindow):
                await flashing.add(session, far)
        with pytest.raises(UnknownFlash):
            await flashing.remove(session, 3)
        await house.fresh(session)
        assert await flashing.remove(session, 1) == 1
        again = await flashing.add(session, QUERY, 4)
        assert (again.id, again.value) == (4, None), "ids are not used again"
        state = await house.fresh(session)
        entries, _ = await flashing.list(session)
        assert [entry.id for entry in entries] == [2, 4]
        fork = await house.cases.branching.fork(session, state.events, None)
        assert await flashing.list(fork) == ((), state.feed.version)
        assert (await ask(house, fork, _question(QUERY)))[1].flash_id is None

    run(tmp_path, story)


def test_fast_answers(tmp_path):
    async def story(house: House) -> None:
        session, plain = await house.open(pre_decode=True), await house.open()
        for one in (session, plain):
            await house.batch(one, *LINES[:4])
        state = await house.fresh(session)
        ready = house.cases.evaluating.ready(state)
        assert ready is not None
        assert ready.text
        assert ready.at == position(state)
        words = ("no", ready.text + "tail", ready.text)
        before = house.computed
        text, fast = await ask(house, session, _question(QUERY, fast_answer=words, gap_threshold=ready.gap))
        assert text == fast.text == ready.text + "tail"
        assert (fast.logit_gap, fast.flash_id, fast.finish) == (ready.gap, None, Finish.END_OF_TURN)
        assert (fast.prompt_tokens, fast.completion_tokens) == (0, 0)
        assert house.computed == before
        for misses in (
            {"fast_answer": words, "gap_threshold": ready.gap + 0.01},
            {"fast_answer": words, "gap_threshold": float("nan")},
            {"fast_answer": ("no", " " + ready.text, ready.text.swapcase() + "x"), "gap_threshold": 0.0},
            {"gap_threshold": 0.0},
        ):
            _, drawn = await ask(house, session, _question(QUERY, **misses))
            assert drawn.logit_gap is None
            assert drawn.completion_tokens
        _, drawn = await ask(house, plain, _question(QUERY, fast_answer=words, gap_threshold=0.0))
        assert drawn.logit_gap is None, "without pre-decode there is no ready position"
        # the first token of an answer to the data alone, with no question
        opened = await house.turn(session, user(QUERY), most=1)
        assert opened.text != ready.text
        assert house.room.metrics.ready_exits == 1

    run(tmp_path, story)


def test_a_flash_answer_comes_before_a_fast_one(tmp_path):
    async def story(house: House) -> None:
        session = await house.open(pre_decode=True)
        await house.batch(session, *LINES[:4])
        await house.cases.flashing.add(session, QUERY, 4)
        state = await house.fresh(session)
        ready = house.cases.evaluating.ready(state)
        assert ready is not None
        _, answer = await ask(house, session, _question(QUERY, fast_answer=(ready.text,), gap_threshold=0.0))
        assert (answer.flash_id, answer.logit_gap) == (1, None)
        _, answer = await ask(house, session, _question("else?", fast_answer=(ready.text,), gap_threshold=0.0))
        assert (answer.flash_id, answer.logit_gap) == (None, ready.gap)

    run(tmp_path, story)


def test_answers_survive_a_restart_and_missing_ones_are_given(tmp_path):
    async def first(house: House) -> None:
        session = await house.open(pre_decode=True)
        await house.batch(session, *LINES[:4])
        await house.cases.flashing.add(session, QUERY, 4)
        kept.append((session, (await house.fresh(session)).feed.flashes[1]))

    async def second(house: House) -> None:
        ((session, flash),) = kept
        state = await house.state(session)
        assert state.feed.flashes[1] == flash
        assert state.is_fresh(flash)
        assert house.cases.evaluating.ready(state) is None
        _, hit = await ask(house, session, _question(QUERY))
        assert hit.text == flash.value
        await house.fresh(session)  # somebody has looked, so what was lost is computed again
        assert len(await _answers(house, session)) == 1

    async def third(house: House) -> None:
        ((session, _),) = kept
        async with aclosing(house.cases.feeds.subscribe(session)) as events:
            async for event in events:
                if isinstance(event, FlashReady):
                    break
            await house.fresh(session)

    kept: list[tuple[int, object]] = []
    run(tmp_path, first)
    run(tmp_path, second)
    run(tmp_path, third)


def test_a_worker_that_dies_costs_time_only(tmp_path):
    async def story(house: House) -> None:
        session = await house.open(pre_decode=True)
        await house.batch(session, *LINES[:4])
        for number in range(4):
            await house.cases.flashing.add(session, f"{QUERY} {number}", 200)

        async def running() -> bool:
            return any(generation.job.started for generation in house.room.in_flight.all())

        await house.until(running)
        assert house.room.worker is not None
        house.room.worker.kill()
        state = await house.fresh(session)
        assert all(state.is_fresh(flash) for flash in state.feed.flashes.values())
        assert house.room.respawns == 1

    run(tmp_path, story, worker_argv=fake(delay_us=200))


def test_a_new_worker_computes_feeds_again_before_anybody_asks(tmp_path):
    async def story(house: House) -> None:
        session, other = await house.open(), await house.open()
        for one in (session, other):
            await house.batch(one, *LINES[:4])
        await house.cases.flashing.add(session, QUERY, 4)
        state = await house.fresh(session)
        assert house.room.worker is not None
        house.room.worker.kill()

        async def back() -> bool:
            place = house.room.kv.get(session)
            return house.room.respawns == 1 and place is not None and place.covered == len(state.tokens)

        await house.until(back)
        assert other not in house.room.kv, "what nobody waits for is computed when it is used"
        assert len(await _answers(house, session)) == 1
        _, answer = await ask(house, session, _question(QUERY + "?"))
        assert answer.cached_tokens >= len(state.tokens) - 1

    run(tmp_path, story)


def test_data_leave_room_for_the_longest_query(tmp_path):
    async def story(house: House) -> None:
        session = await house.cases.feeds.open(None, None, False)
        query = "and what of this? " * 20
        await house.cases.flashing.add(session, query, 256)
        for start in range(0, 400, 40):
            house.cases.feeds.push(
                session, tuple(f"tick {number} of the feed" for number in range(start, start + 40))
            )
        report = await house.settled(session)
        assert report.total_dropped
        state = await house.fresh(session)
        _, drawn = await ask(house, session, _question(query + "!", max_tokens=None))
        assert drawn.completion_tokens >= 256
        assert state.feed.flashes[1].value == (await ask(house, session, _question(query)))[0]

    run(tmp_path, story, query_reserve=64)
