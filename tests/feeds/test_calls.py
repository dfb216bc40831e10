"""Data beside tool calls and messages of the session API: what waits, and where it then stands."""

from __future__ import annotations

from superfluid.daemon.feeds.asking import Question
from superfluid.protocol import records
from superfluid.protocol.codes import Role
from tests.feeds.house import House, ask, run
from tests.model import tool_templates
from tests.support import scripted
from tests.support.daemon import GREEDY

TOOL = '{"name": "look", "description": "Look.", "parameters": {"type": "object", "properties": {}}}'


async def _stream(house: House, session: int) -> str:
    tokens = (await house.state(session)).tokens
    return "".join(map(house.cases.conversing.model.vocabulary.spell, tokens))


async def _pushed(house: House, session: int, *lines: str) -> None:
    house.cases.feeds.push(session, lines)
    await house.settled(session)


def test_data_beside_a_tool_call(tmp_path):
    settings = scripted.write(
        tmp_path,
        tool_templates.HERMES,
        {"what is there?": scripted.Call("look", "{}"), scripted.Result("look", "a cat"): "There is a cat."},
    )

    async def story(house: House) -> None:
        feeds, appending = house.cases.feeds, house.cases.appending
        session = await feeds.open("called", 200, False)
        await appending.system(session, "be there", (TOOL,))
        await appending.message(session, Role.USER, "what is there?")
        async with house.cases.generating.generate(session, 40) as generation:
            await generation.ended.wait()
        ((call, _),) = (await house.state(session)).open_calls
        before = await _stream(house, session)
        feeds.push(session, ("tick 1",))
        answer = (await ask(house, session, Question("how many?", 3, GREEDY)))[1]
        assert answer.data_version == 0
        assert (await feeds.report(session)).pending == 1
        assert await _stream(house, session) == before
        await appending.tool_result(session, call, "a cat")
        await house.settled(session)
        result = "<|im_end|>\n<|im_start|>user\n<tool_response>\na cat\n</tool_response><|im_end|>\n"
        shown = await _stream(house, session)
        assert shown == before.removesuffix("<|im_end|>") + result + "<|im_start|>user\ntick 1\n"
        kinds = [type(event.body) for event in await house.book.read(session, 0)]
        assert kinds[-2:] == [records.ToolResult, records.Ingested]
        # what comes next closes the data's turn
        async with house.cases.generating.generate(session, 2) as generation:
            await generation.ended.wait()
        assert (await _stream(house, session)).startswith(shown + "<|im_end|>\n<|im_start|>assistant\n")

    run(tmp_path, story, **settings)


def test_messages_of_the_session_api_close_the_turn_of_data(tmp_path):
    async def story(house: House) -> None:
        session = await house.cases.feeds.open("told", 200, False)
        await _pushed(house, session, "tick 1", "tick 2")
        start = await _stream(house, session)
        assert start.endswith("<|im_start|>user\ntick 1\ntick 2\n")
        await house.cases.appending.message(session, Role.SYSTEM, "be brief")
        await _pushed(house, session, "tick 3")
        await house.cases.appending.message(session, Role.USER, "well?")
        await _pushed(house, session, "tick 4")
        await house.cases.appending.message(session, Role.ASSISTANT, "so it is")
        await _pushed(house, session, "tick 5")
        assert await _stream(house, session) == start + (
            "<|im_end|>\n<|im_start|>system\nbe brief<|im_end|>\n"
            "<|im_start|>user\ntick 3\nwell?<|im_end|>\n"
            "<|im_start|>user\ntick 4\n<|im_end|>\n"
            "<|im_start|>assistant\nso it is<|im_end|>\n"
            "<|im_start|>user\ntick 5\n"
        )
        state = await house.state(session)
        assert len(state.feed.entries) == 5

    run(tmp_path, story)
