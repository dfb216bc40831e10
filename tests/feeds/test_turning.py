"""Chat turns on a session with data: the conversation is sent whole, and only what is new is computed."""

from __future__ import annotations

from contextlib import aclosing

import pytest
import trio
import trio.testing

from superfluid.daemon.feeds.asking import Question
from superfluid.daemon.replies.conversing import Ask, Turn
from superfluid.protocol import records
from superfluid.protocol.codes import Finish, Role
from superfluid.protocol.refusals import (
    EmptySession,
    OverWindow,
    PermissionPending,
    ProtocolRefusal,
    SessionBusy,
    UnknownSession,
)
from tests.durability.house import fake
from tests.feeds.house import House, ask, assistant, run, system, user
from tests.support.daemon import GREEDY

LINES = tuple(f"tick {number} of the feed is worth {number * number}" for number in range(24))
HELLO = user("hello, what is new?")
MORE = user("and after that?")


async def _bodies(house: House, session: int, kind: type) -> list:
    return [e.body for e in await house.book.read(session, 0) if isinstance(e.body, kind)]


def _shown(house: House, tokens) -> str:
    return "".join(map(house.cases.conversing.model.vocabulary.spell, tokens))


def _chatml(*said: tuple[int, str]) -> str:
    names = {Role.SYSTEM: "system", Role.USER: "user", Role.ASSISTANT: "assistant"}
    return "".join(f"<|im_start|>{names[Role(role)]}\n{text}<|im_end|>\n" for role, text in said)


def _whole(*said: tuple[int, str]) -> str:
    """With the system message that the model's template puts first where there is none."""
    usual = system("You are a helpful AI assistant named SmolLM, trained by Hugging Face")
    return _chatml(*said) if said[0][0] == Role.SYSTEM else _chatml(usual, *said)


async def _stream(house: House, session: int) -> str:
    return _shown(house, (await house.state(session)).tokens)


def test_a_resent_conversation_with_data_between_computes_only_what_is_new(tmp_path):
    async def story(house: House) -> None:
        session = await house.open()
        await house.batch(session, *LINES[:12])
        first = await house.turn(session, system("be brief"), HELLO)
        said = [system("be brief"), HELLO, assistant(first.text)]
        await house.batch(session, *LINES[12:])
        before, length = house.computed, len((await house.state(session)).tokens)
        second = await house.turn(session, *said, MORE)
        assert second.prompt_tokens - length < 20
        assert house.computed - before <= second.prompt_tokens - length + 1
        assert second.cached_tokens >= length - 1
        # nothing between: what is computed is the question alone
        said += [MORE, assistant(second.text)]
        before, length = house.computed, len((await house.state(session)).tokens)
        third = await house.turn(session, *said, HELLO)
        assert house.computed - before <= third.prompt_tokens - length + 1
        state = await house.state(session)
        assert state.turns == 3
        assert [(message.role, message.text) for message in state.said] == [*said, HELLO, assistant(third.text)]
        assert len(await _bodies(house, session, records.Restored)) == 1, "the system message came late"

    run(tmp_path, story)


def test_a_turn_sees_the_data(tmp_path):
    """The stream is what the template renders for the data as lines of the user's message."""

    async def story(house: House) -> None:
        session = await house.open()
        first = await house.turn(session, HELLO)
        await house.batch(session, *LINES[:2])
        await house.batch(session, LINES[2])
        second = await house.turn(session, HELLO, assistant(first.text), MORE)
        shown = await _stream(house, session)
        cut = _whole(HELLO, assistant(first.text), user("\n".join((*LINES[:3], MORE[1]))))
        assert shown == f"{cut}<|im_start|>assistant\n{second.text}"

    run(tmp_path, story)


def test_a_system_message_that_comes_late_stands_before_the_data(tmp_path):
    async def story(house: House) -> None:
        session = await house.open()
        await house.batch(session, *LINES[:3])
        version = (await house.state(session)).feed.version
        reply = await house.turn(session, system("be brief"), HELLO)
        expected = _whole(system("be brief"), user("\n".join((*LINES[:3], HELLO[1]))))
        assert await _stream(house, session) == f"{expected}<|im_start|>assistant\n{reply.text}"
        state = await house.state(session)
        assert state.feed.version == version + 1
        assert len(state.feed.entries) == 3
        # without a system message there is nothing to rewind
        other = await house.open()
        await house.batch(other, *LINES[:3])
        await house.turn(other, HELLO)
        assert (await house.state(other)).feed.version == 1

    run(tmp_path, story)


def test_an_edit_in_the_middle_keeps_the_data(tmp_path):
    async def story(house: House) -> None:
        session = await house.open()
        await house.batch(session, *LINES[:3])
        first = await house.turn(session, HELLO)
        said = [HELLO, assistant(first.text)]
        await house.batch(session, *LINES[3:6])
        second = await house.turn(session, *said, MORE)
        await house.batch(session, *LINES[6:8])
        before = await house.state(session)
        edited = user("what else?")
        third = await house.turn(session, *said, edited)
        state = await house.state(session)
        expected = _whole(
            user("\n".join((*LINES[:3], HELLO[1]))),
            assistant(first.text),
            user("\n".join((*LINES[3:8], edited[1]))),
        )
        assert await _stream(house, session) == f"{expected}<|im_start|>assistant\n{third.text}"
        assert state.feed.version == before.feed.version + 1
        assert len(state.feed.entries) == 8
        assert (state.feed.evicted, state.feed.dropped) == (0, 0)
        # the front is resumed, the data is not computed again as far as it stood there before
        assert third.cached_tokens >= len(before.tokens) // 3
        # the log keeps the old events
        texts = "".join(body.text for body in await _bodies(house, session, records.Generated))
        assert texts == first.text + second.text + third.text
        (rewound,) = await _bodies(house, session, records.Rewound)
        assert (rewound.messages, rewound.version) == (2, state.feed.version)

    run(tmp_path, story)


def test_a_question_asked_again_comes_after_the_data(tmp_path):
    async def story(house: House) -> None:
        session = await house.open()
        await house.batch(session, *LINES[:2])
        await house.turn(session, HELLO)
        await house.batch(session, LINES[2])
        again = await house.turn(session, HELLO)
        expected = _whole(user("\n".join((*LINES[:3], HELLO[1]))))
        assert await _stream(house, session) == f"{expected}<|im_start|>assistant\n{again.text}"

    run(tmp_path, story)


def test_a_shorter_conversation_without_data_is_rewound(tmp_path):
    async def story(house: House) -> None:
        session = await house.open()
        first = await house.turn(session, HELLO)
        await house.turn(session, HELLO, assistant(first.text), MORE)
        before = house.computed
        again = await house.turn(session, HELLO)
        assert again.text == first.text
        assert house.computed - before <= 2, "the KV is there"
        state = await house.state(session)
        assert [message.text for message in state.said] == [HELLO[1], again.text]

    run(tmp_path, story)


def test_a_cut_reply_is_closed(tmp_path):
    async def story(house: House) -> None:
        session = await house.open()
        cut = await house.turn(session, HELLO, most=3)
        assert cut.finish is Finish.LENGTH
        second = await house.turn(session, HELLO, assistant(cut.text), MORE, most=3)
        expected = _whole(HELLO, assistant(cut.text), MORE)
        assert await _stream(house, session) == f"{expected}<|im_start|>assistant\n{second.text}"
        await house.batch(session, LINES[0])
        expected += _chatml(assistant(second.text))
        assert await _stream(house, session) == f"{expected}<|im_start|>user\n{LINES[0]}\n"

    run(tmp_path, story)


def test_a_reply_that_a_stop_string_ends_holds_no_more_than_was_said(tmp_path):
    async def story(house: House) -> None:
        session, twin = await house.open(), await house.open()
        await house.batch(session, *LINES[:2])
        whole = await house.turn(twin, HELLO, most=1)
        await house.batch(twin, *LINES[:2])
        whole = await house.turn(twin, HELLO, most=40)
        stop = whole.text[len(whole.text) // 2 :][:4]
        reply = await house.turn(session, HELLO, most=40, stops=(stop,))
        said = whole.text[: whole.text.index(stop)]
        assert (reply.text, reply.stop, reply.finish) == (said, stop, Finish.END_OF_TURN)
        state = await house.state(session)
        assert [message.text for message in state.said] == [HELLO[1], said]
        assert (state.feed.version, state.turns, state.last_finish) == (1, 1, Finish.END_OF_TURN)
        assert _shown(house, state.tokens) == _whole(user("\n".join((*LINES[:2], HELLO[1]))), assistant(said))
        assert len(state.feed.entries) == 2
        await house.turn(session, HELLO, assistant(said), MORE)
        assert (await house.state(session)).feed.version == 1, "what was said matches"

    run(tmp_path, story)


def test_a_stopped_reply_to_data_stands_after_them(tmp_path):
    async def story(house: House) -> None:
        session, twin = await house.open(), await house.open()
        for one in (session, twin):
            await house.turn(one, HELLO, most=3)
            await house.batch(one, *LINES[:2])
        said = (HELLO, assistant((await house.state(twin)).said[-1].text))
        whole = (await house.turn(twin, *said, most=40)).text
        stop = whole[len(whole) // 2 :][:4]
        reply = await house.turn(session, *said, most=40, stops=(stop,))
        assert reply.text == whole[: whole.index(stop)]
        expected = _whole(*said, user("\n".join((*LINES[:2], "")))) + _chatml(assistant(reply.text))
        assert await _stream(house, session) == expected

    run(tmp_path, story)


def test_white_space_around_a_reply_does_not_count(tmp_path):
    async def story(house: House) -> None:
        session = await house.open()
        first = await house.turn(session, HELLO)
        await house.turn(session, HELLO, assistant(f" {first.text.strip()}\n"), MORE)
        assert not await _bodies(house, session, records.Rewound)

    run(tmp_path, story)


def test_a_conversation_that_others_began_is_taken_over(tmp_path):
    """Client-made history, and what came over the session API, are conversation like any other."""

    async def story(house: House) -> None:
        session = await house.open()
        history = [system("be brief"), HELLO, assistant("nothing"), MORE]
        reply = await house.turn(session, *history)
        assert await _stream(house, session) == f"{_whole(*history)}<|im_start|>assistant\n{reply.text}"
        other = await house.open()
        await house.cases.appending.message(other, Role.USER, HELLO[1])
        async with house.cases.generating.generate(other, 4) as generation:
            await generation.ended.wait()
        drawn = (await house.state(other)).said[-1].text
        await house.turn(other, HELLO, assistant(drawn), MORE)
        assert not await _bodies(house, other, records.Rewound)

    run(tmp_path, story)


def test_an_open_call_that_is_rewound_is_over(tmp_path):
    async def story(house: House) -> None:
        session = await house.open()
        first = await house.turn(session, HELLO)
        async with house.book.writing(session) as state:
            await house.book.commit_one(state, records.ToolUse("f", "{}"))
        assert (await house.state(session)).open_calls
        await house.turn(session, HELLO, assistant(first.text), MORE)
        state = await house.state(session)
        assert not state.open_calls
        assert len(await _bodies(house, session, records.Rewound)) == 1, "a message with a call is another one"
        async with house.book.writing(session) as state:
            await house.book.commit_one(state, records.PermissionRequest(0, "may I?"))
        with pytest.raises(PermissionPending):
            await house.turn(session, HELLO)

    run(tmp_path, story)


def test_what_does_not_fit_is_refused_before_anything_is_written(tmp_path):
    async def story(house: House) -> None:
        session = await house.open()
        await house.batch(session, *LINES[:3])
        first = await house.turn(session, HELLO)
        before = await house.state(session)
        for text in ("and " * 1100, "x" * 4_000_000):
            with pytest.raises(OverWindow):
                await house.turn(session, user("other"), assistant("one"), user(text))
        with pytest.raises(ProtocolRefusal):
            await house.turn(session, HELLO, (9, "who?"))
        with pytest.raises(EmptySession):
            await house.turn(await house.open())
        with pytest.raises(UnknownSession):
            await house.turn(99, HELLO)
        with pytest.raises(ProtocolRefusal):
            async with house.cases.turning.reply(session, Ask(GREEDY, prompt="hello")):
                pass
        assert await house.state(session) == before
        await house.turn(session, HELLO, assistant(first.text), MORE)

    run(tmp_path, story)


def test_leaving_a_turn_cancels_it_and_keeps_what_was_drawn(tmp_path):
    async def story(house: House) -> None:
        session = await house.open()
        ask = Ask(GREEDY, (Turn(*HELLO),), max_tokens=900)
        async with house.cases.turning.reply(session, ask) as reply, aclosing(reply.pieces()) as pieces:
            async for _ in pieces:
                if reply.completion_tokens > 4:
                    break
        state = await house.state(session)
        assert state.last_finish == Finish.CANCELLED
        assert state.said[-1].text.startswith(reply.text)
        assert not house.room.in_flight.busy(session)
        await house.turn(session, HELLO)

    run(tmp_path, story, worker_argv=fake(delay_us=500))


def test_warming_computes_what_the_next_turn_sends(tmp_path):
    async def story(house: House) -> None:
        session = await house.open()
        await house.batch(session, *LINES)
        before = await house.state(session)
        turns = (Turn(*HELLO), Turn(*assistant("nothing")), Turn(*MORE))
        warmed = await house.cases.turning.warm(session, turns)
        assert (warmed.finish, warmed.data_version) == ("warmed", 1)
        assert warmed.cached_tokens >= len(before.tokens) - 1
        assert await house.state(session) == before
        assert house.room.kv[session].covered >= warmed.prompt_tokens
        computed = house.computed
        again = await house.cases.turning.warm(session, turns)
        assert (again.finish, again.prompt_tokens) == ("covered", warmed.prompt_tokens)
        assert house.computed == computed
        reply = await house.turn(session, *((turn.role, turn.text) for turn in turns))
        assert reply.cached_tokens >= warmed.prompt_tokens - 1
        assert house.computed - computed <= reply.prompt_tokens - warmed.prompt_tokens + 1
        assert (await house.cases.turning.warm(session, (*turns, Turn(*assistant(reply.text))))).finish == "covered"
        assert house.room.metrics.warm_turns == 1
        assert house.room.metrics.warmed_tokens == warmed.prompt_tokens - warmed.cached_tokens

    run(tmp_path, story)


def test_a_turn_and_a_newer_warming_cancel_a_warming(tmp_path):
    async def story(house: House) -> None:
        session = await house.open()
        ends: dict[str, str] = {}

        async def warm(name: str, text: str) -> None:
            warmed = await house.cases.turning.warm(session, (Turn(Role.USER, text),))
            ends[name] = warmed.finish

        async def running() -> bool:
            return any(generation.job.started for generation in house.room.in_flight.all())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(warm, "first", "and so " * 300)
            await house.until(running)
            nursery.start_soon(warm, "second", "or so " * 300)

            async def first_ended() -> bool:
                return "first" in ends

            await house.until(first_ended)
            await house.until(running)
            await house.turn(session, HELLO, most=2)
        assert ends == {"first": "cancelled", "second": "cancelled"}
        ask = Ask(GREEDY, (Turn(*HELLO),), max_tokens=900)
        async with house.cases.turning.reply(session, ask):
            with pytest.raises(SessionBusy):
                await house.cases.turning.warm(session, (Turn(*HELLO),))
        with pytest.raises(OverWindow):
            await house.cases.turning.warm(session, (Turn(Role.USER, "and " * 1100),))

    run(tmp_path, story, worker_argv=fake(delay_us=1000))


def test_kv_of_data_that_have_left_does_not_come_back(tmp_path):
    """They may be erased by the time at which whoever saw them has rendered, or finds a place in the queue."""

    async def story(house: House) -> None:
        session = await house.open()
        await house.batch(session, *LINES)
        generating, limiter = house.cases.generating, trio.to_thread.current_default_thread_limiter()
        ends: list[str] = []

        async def leave() -> None:
            async with house.book.writing(session) as state:
                await house.book.commit_one(state, records.Ingested(state.feed.version + 1, (), (), 2, 0))

        async def warm() -> None:
            turns = (Turn(Role.USER, "international " * 320),)
            ends.append((await house.cases.turning.warm(session, turns)).finish)

        async with trio.open_nursery() as nursery:
            threads, limiter.total_tokens = limiter.total_tokens, 1
            async with limiter:  # so the message is not rendered yet
                nursery.start_soon(warm)
                await trio.testing.wait_all_tasks_blocked()
                before, computed = await house.state(session), house.computed
                await leave()
            limiter.total_tokens = threads
        assert ends == ["cancelled"]
        with house.book.passing(GREEDY, like=before) as asked:
            assert await generating.admit_in_time(asked, 0, kv_session=session) is None
        assert house.computed == computed
        await warm()
        assert ends == ["cancelled", "warmed"]

    run(tmp_path, story)


def test_a_turn_is_refused_while_a_generation_is_only_beginning(tmp_path):
    """The opener of a generation is being committed, and nothing of it runs yet."""

    async def story(house: House) -> None:
        session = await house.open()
        await house.cases.appending.message(session, *HELLO)

        async def generate() -> None:
            async with house.cases.generating.generate(session, 8) as generation:
                await generation.ended.wait()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(generate)
            while not house.room.schedule.reserved:
                await trio.lowlevel.checkpoint()
            with pytest.raises(SessionBusy):
                await house.turn(session, HELLO)
            with pytest.raises(SessionBusy):
                await ask(house, session, Question("what?"))
        assert [body.finish for body in await _bodies(house, session, records.Generated)][-1] != Finish.OPEN
        assert not await _bodies(house, session, records.Rewound)

    run(tmp_path, story)
