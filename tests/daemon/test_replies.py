"""What a stateless request is answered from: what it says, whatever others have asked before."""

from __future__ import annotations

import trio

from superfluid.daemon.engine.generation import Generation
from superfluid.daemon.metrics import Metrics
from superfluid.daemon.replies.conversing import Ask, Reply, Turn
from superfluid.model.channels import Block, Channels, Marker
from superfluid.protocol.codes import Channel, Finish, Qos, Role
from superfluid.protocol.records import Event
from superfluid.protocol.ticks import pack
from superfluid.scheduler.job import Job
from tests.durability.house import fake
from tests.feeds.house import House, run
from tests.support.daemon import GREEDY

PROMPTS = tuple(f"Number {number} is" for number in range(12))


def test_what_goes_on_from_a_raw_prompt_changes_no_conversation(tmp_path):
    """The same words as an assistant's are rendered as that, and not as the tokens that were drawn."""

    async def told(house: House, text: str) -> int:
        turns = (Turn(Role.USER, "and?"), Turn(Role.ASSISTANT, text), Turn(Role.USER, "go on"))
        return await house.cases.conversing.count(turns, {})

    async def drawing(house: House) -> None:
        for prompt in PROMPTS:
            ask = Ask(GREEDY, prompt=prompt, max_tokens=200)
            async with house.cases.conversing.reply(ask) as reply:
                async for _ in reply.pieces():
                    pass
            assert reply.finish is Finish.END_OF_TURN
            drawn[reply.text] = await told(house, reply.text)

    async def new(house: House) -> None:
        assert {text: await told(house, text) for text in drawn} == drawn

    drawn: dict[str, int] = {}
    for name, story in (("drawing", drawing), ("new", new)):
        (tmp_path / name).mkdir()
        run(tmp_path / name, story, worker_argv=fake(end_every=4))
    assert len(drawn) > len(PROMPTS) // 2


def test_text_that_was_held_back_is_no_token_more():
    """A stop string in what may have become a marker, and did not by the end of the turn."""

    async def story() -> None:
        channels = Channels((Block(Channel.REASONING, Marker("<think>"), Marker("</think>")),))
        splitter = channels.splitter({1: b"a ", 2: b"<", 3: b""}.__getitem__)
        job = Job(1, 1, Qos.AGENT, pack([0]), GREEDY, offset=0, limit=9, arrived=0.0)
        generation = Generation(job, splitter, Metrics(), live=True, ends=True)
        generation.draw([1, 2, 3])
        bodies = generation.cut(Finish.END_OF_TURN).bodies
        generation.committed([Event(place, 1, 0, body) for place, body in enumerate(bodies)])
        generation.end(Finish.END_OF_TURN)
        reply = Reply(generation, 1, ("<",), lambda _: None)
        assert [text async for text in reply.pieces()] == ["a "]
        assert (reply.stop, reply.completion_tokens) == ("<", 3)

    trio.run(story)
