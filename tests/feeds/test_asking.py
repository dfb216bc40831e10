"""A question over a session: answered from what it holds, and as if it had never been asked."""

from __future__ import annotations

from dataclasses import replace

import pytest
import trio
import trio.testing

from superfluid.daemon.engine.generation import Generation
from superfluid.daemon.feeds.asking import Question
from superfluid.daemon.replies.conversing import Ask, Turn
from superfluid.protocol.codes import Finish, Role
from superfluid.protocol.records import GenerationPrompt, GenParams, ToolUse
from superfluid.protocol.refusals import NothingInFlight, OverWindow, ProtocolRefusal, SessionBusy, UnknownSession
from superfluid.protocol.ticks import IN_SEQUENCE
from tests.durability.house import fake
from tests.feeds.house import House, ask, assistant, run, system, user
from tests.support.daemon import GREEDY

LINES = tuple(f"tick {number} of the feed is worth {number * number}" for number in range(12))
WHAT = Question("which one?", max_tokens=6, params=GREEDY)


def test_a_question_leaves_no_trace(tmp_path):
    async def story(house: House, *, asks: bool):
        session = await house.open()
        await house.batch(session, *LINES[:6])
        if asks:
            for prompt in ("which one?", "how many?", "which one?"):
                await ask(house, session, replace(WHAT, prompt=prompt))
            await house.batch(session, *LINES[6:])
            await ask(house, session, WHAT)
        else:
            await house.batch(session, *LINES[6:])
        held = house.room.kv[session]
        before = house.computed
        reply = await house.turn(session, system("be brief"), user("sum it up"))
        again = await house.turn(session, system("be brief"), user("sum it up"), assistant(reply.text), user("more"))
        state = await house.state(session)
        events = await house.book.read(session, 0)
        result.append(
            (
                held,
                reply.text,
                again.text,
                house.computed - before,
                again.cached_tokens,
                state,
                [e.body for e in events],
            )
        )

    result: list[object] = []
    (tmp_path / "asked").mkdir()
    (tmp_path / "silent").mkdir()
    run(tmp_path / "asked", lambda house: story(house, asks=True))
    run(tmp_path / "silent", lambda house: story(house, asks=False))
    assert result[0] == result[1]


def test_the_answer_is_the_models_own(tmp_path):
    """What a question draws is what a chat turn with the same words would have drawn."""

    async def story(house: House) -> None:
        session, twin = await house.open(), await house.open()
        for one in (session, twin):
            await house.batch(one, *LINES)
        text, answer = await ask(house, session, WHAT)
        assert text == answer.text != ""
        state = await house.state(session)
        assert answer.data_version == state.feed.version == 1
        assert (answer.finish, answer.completion_tokens) == (Finish.LENGTH, 6)
        assert answer.flash_id is answer.confidence is answer.logit_gap is None
        reply = await house.turn(twin, user("which one?"), most=6)
        assert reply.text == answer.text
        twin_state = await house.state(twin)
        opener = next(e.body for e in await house.book.read(twin, 0) if isinstance(e.body, GenerationPrompt))
        own = twin_state.said[-1].start + len(opener.span) - len(state.tokens)
        assert answer.prompt_tokens == own

    run(tmp_path, story)


@pytest.mark.parametrize("settings", [{}, {"max_batch": 1, "kv_host_bytes": 0}], ids=["usual", "narrow"])
def test_questions_cost_their_own_tokens(tmp_path, settings):
    async def story(house: House) -> None:
        session = await house.open()
        await house.batch(session, *LINES)
        for prompt in ("one?", "two?", "three?"):
            before = house.computed
            _, answer = await ask(house, session, replace(WHAT, prompt=prompt))
            assert house.computed - before <= answer.prompt_tokens + 1
            assert answer.cached_tokens >= len((await house.state(session)).tokens) - 1
        assert house.room.kv[session].tier == IN_SEQUENCE
        assert set(house.room.kv) == {session}

    run(tmp_path, story, **settings)


def test_sampling_and_stops(tmp_path):
    async def story(house: House) -> None:
        session = await house.open()
        await house.batch(session, *LINES)
        seeded = replace(WHAT, params=GenParams(0.800000011920929, 1.0, 0.0, 0, 5), max_tokens=12)
        first = (await ask(house, session, seeded))[1]
        assert (await ask(house, session, seeded))[1].text == first.text
        fresh = {(await ask(house, session, replace(WHAT, params=None)))[1].text for _ in range(4)}
        assert len(fresh) > 1, "no seed is a fresh seed"
        stop = first.text[len(first.text) // 2 :][:3]
        text, cut = await ask(house, session, replace(seeded, stops=(stop,)))
        assert text == cut.text == first.text[: first.text.index(stop)]
        assert cut.finish is Finish.END_OF_TURN

    run(tmp_path, story)


def test_a_question_that_does_not_fit_is_refused_with_counts(tmp_path):
    async def story(house: House) -> None:
        session = await house.open()
        await house.batch(session, *LINES)
        before = await house.state(session)
        with pytest.raises(OverWindow) as refused:
            await ask(house, session, replace(WHAT, prompt="and " * 1200))
        assert refused.value.window == 1024
        assert refused.value.tokens > 1200 + len(before.tokens)
        with pytest.raises(OverWindow):
            await ask(house, session, replace(WHAT, prompt="x" * 4_000_000))
        for wrong in (
            replace(WHAT, prompt=""),
            replace(WHAT, max_tokens=0),
            replace(WHAT, stops=("x",) * 17),
            replace(WHAT, stops=("x" * 4097,)),
        ):
            with pytest.raises(ProtocolRefusal):
                await ask(house, session, wrong)
        with pytest.raises(UnknownSession):
            await ask(house, 999, WHAT)
        assert await house.state(session) == before
        # no limit is as much as there is room for
        _, answer = await ask(house, session, replace(WHAT, max_tokens=None))
        assert answer.prompt_tokens + answer.completion_tokens + len(before.tokens) == 1024
        assert answer.finish is Finish.LENGTH

    run(tmp_path, story)


def test_one_foreground_request_a_session(tmp_path):
    async def story(house: House) -> None:
        session, other = await house.open(), await house.open()
        await house.batch(session, *LINES)
        turning, asking, appending = house.cases.turning, house.cases.asking, house.cases.appending
        chat = Ask(GREEDY, (Turn(Role.USER, "hello"),), max_tokens=400)
        long = replace(WHAT, max_tokens=400)
        async with asking.ask(session, long):
            with pytest.raises(SessionBusy):
                await ask(house, session, WHAT)
            with pytest.raises(SessionBusy):
                await house.turn(session, user("hello"))
            with pytest.raises(SessionBusy):
                await appending.message(session, Role.USER, "hello")
            with pytest.raises(SessionBusy):
                async with house.cases.generating.generate(session, 4):
                    pass
            await ask(house, other, WHAT)
        async with turning.reply(session, chat):
            with pytest.raises(SessionBusy):
                await ask(house, session, WHAT)
        async with house.cases.generating.generate(session, 400):
            with pytest.raises(SessionBusy):
                await ask(house, session, WHAT)
            with pytest.raises(SessionBusy):
                await house.turn(session, user("hello"))

        async def free() -> bool:
            return not house.room.in_flight.busy(session)

        await house.until(free)
        await ask(house, session, WHAT)

    run(tmp_path, story)


def test_nobody_comes_between_while_a_reply_is_opened(tmp_path):
    """The header of a reply is written before the reply is queued; the disk may be slow."""

    async def story(house: House) -> None:
        session = await house.open()
        await house.batch(session, *LINES)

        async def generate() -> None:
            async with house.cases.generating.generate(session, 8) as generation:
                assert isinstance(generation, Generation)
                await generation.ended.wait()
                assert generation.refusal is None

        async def opening() -> bool:
            return bool(house.book.log._writing.statistics().tasks_waiting)

        async with trio.open_nursery() as nursery, house.book.log._writing:  # nothing is written meanwhile
            nursery.start_soon(generate)
            await house.until(opening)
            with pytest.raises(SessionBusy):
                await ask(house, session, WHAT)
            with pytest.raises(SessionBusy):
                await house.turn(session, user("hello"))
        assert not house.room.in_flight.busy(session)
        await house.turn(session, user("hello"))

    run(tmp_path, story)


def test_who_leaves_ends_the_answer(tmp_path):
    async def story(house: House) -> None:
        session = await house.open()
        await house.batch(session, *LINES)
        with trio.CancelScope() as leaving:
            async with house.cases.asking.ask(session, replace(WHAT, max_tokens=800)) as answering:
                async for _ in answering.pieces():
                    leaving.cancel()
        await house.quiet()
        assert not house.room.in_flight.busy(session)
        assert set(house.room.kv) == {session}

    run(tmp_path, story)


def test_a_question_is_cancelled_as_a_generation_is(tmp_path):
    async def story(house: House) -> None:
        session = await house.open()
        await house.batch(session, *LINES)
        before = await house.state(session)
        with pytest.raises(NothingInFlight):
            house.cases.generating.cancel(session)
        async with house.cases.asking.ask(session, replace(WHAT, max_tokens=800)) as answering:
            pieces = answering.pieces()
            await anext(pieces)
            house.cases.generating.cancel(session)
            async for _ in pieces:
                pass
            assert answering.answer.finish is Finish.CANCELLED
            house.cases.generating.cancel(session)  # no effect on what has ended
        ends = []

        async def asks() -> None:
            ends.append((await ask(house, session, replace(WHAT, max_tokens=800)))[1])

        async with trio.open_nursery() as nursery, house.book.turn(session):  # it is about to be put
            nursery.start_soon(asks)
            await trio.testing.wait_all_tasks_blocked()
            house.cases.generating.cancel(session)
        assert [(end.finish, end.text) for end in ends] == [(Finish.CANCELLED, "")]
        with pytest.raises(NothingInFlight):
            house.cases.generating.cancel(session)
        assert await house.state(session) == before

    run(tmp_path, story, worker_argv=fake(delay_us=300))


def test_a_question_has_a_place_in_any_session(tmp_path):
    async def story(house: House) -> None:
        empty = await house.open()
        assert (await ask(house, empty, WHAT))[1].data_version == 0
        appending = house.cases.appending
        await appending.message(empty, Role.SYSTEM, "be brief")
        assert (await ask(house, empty, WHAT))[0]
        await appending.message(empty, Role.USER, "hello")
        assert (await ask(house, empty, WHAT))[0]
        async with house.cases.generating.generate(empty, 3) as generation:
            await generation.ended.wait()
        before = await house.state(empty)
        async with house.cases.asking.ask(empty, WHAT) as answering:
            assert [piece async for piece in answering.pieces()]
            (asked,) = house.book._passing.values()
            rest = asked.tokens[len(before.tokens) :]
        vocabulary = house.cases.conversing.model.vocabulary
        # the reply was cut: the question closes it
        assert rest[0] == vocabulary.control["<|im_end|>"]
        assert await house.state(empty) == before
        async with house.book.writing(empty) as state:
            await house.book.commit_one(state, ToolUse("f", "{}"))
        assert (await ask(house, empty, WHAT))[0], "a call that is open waits for its result, not for questions"

    run(tmp_path, story)
