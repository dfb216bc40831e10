"""Questions and turns on models whose templates are of other kinds, and on one that has none."""

from __future__ import annotations

import pytest

from superfluid.daemon.feeds.asking import Question
from superfluid.protocol.codes import Role
from superfluid.protocol.refusals import ProtocolRefusal
from tests.durability.house import fake
from tests.feeds.house import House, ask, assistant, run, system, user
from tests.model import templates, tiny_gguf
from tests.support.daemon import GREEDY

LINES = ("the cat sat", "the dog <s> ran")
WHAT = Question("what </s> now?", 4, GREEDY)
SMALL = fake(vocabulary=457, low=120)
"""As many tokens as `tiny_gguf` has; it draws those that are text."""


async def _asked(house: House, session: int, question: Question = WHAT) -> str:
    """What a question's answer is drawn from, as text."""
    async with house.cases.asking.ask(session, question) as answering:
        (state,) = house.book._passing.values()
        length = len((await house.state(session)).tokens) + answering.prompt_tokens
        assert [piece async for piece in answering.pieces()]
    return "".join(map(house.cases.conversing.model.vocabulary.spell, state.tokens[:length]))


def test_a_model_without_a_template_gets_plain_text(tmp_path):
    model = tiny_gguf.write(tmp_path / "plain.gguf", kind="spm", adds_bos=True, space_prefix=True)

    async def story(house: House) -> None:
        vocabulary = house.cases.conversing.model.vocabulary
        session = await house.open(pre_decode=True)
        await house.batch(session, *LINES)
        shown = await _asked(house, session)
        state = await house.fresh(session)
        assert shown == "<s>" + "\n".join((*LINES, WHAT.prompt))
        assert list(state.tokens).count(vocabulary.bos) == 1
        assert not vocabulary.control_ids & set(state.tokens[1:])
        assert house.cases.evaluating.ready(state) is not None
        await house.cases.flashing.add(session, WHAT.prompt, 4)
        await house.fresh(session)
        assert (await ask(house, session, WHAT))[1].flash_id == 1
        with pytest.raises(ProtocolRefusal, match="no chat template"):
            await house.turn(session, user("hello"))
        # what the model goes on to say itself is data's continuation
        async with house.cases.generating.generate(session, 3) as generation:
            await generation.ended.wait()
        await house.batch(session, "and more")
        assert len((await house.state(session)).feed.entries) == 3

    run(tmp_path, story, vocabulary=model, worker_argv=SMALL)


@pytest.mark.parametrize("source", ["GEMMA", "MISTRAL_V1", "LLAMA3"])
def test_templates_that_want_turns_to_alternate(tmp_path, source):
    text = getattr(templates, source)
    model = tiny_gguf.write(tmp_path / "m.gguf", kind="spm", adds_bos=True, space_prefix=True, template=text)

    async def story(house: House) -> None:
        session = await house.open()
        await house.batch(session, *LINES)
        assert "\n".join((*LINES, WHAT.prompt)) in await _asked(house, session)
        first = await house.turn(session, system("be there"), user("hello"), most=3)
        said = (system("be there"), user("hello"), assistant(first.text))
        await ask(house, session, WHAT)
        await house.batch(session, "and more")
        assert f"and more\n{WHAT.prompt}" in await _asked(house, session)
        second = await house.turn(session, *said, user("again"), most=3)
        state = await house.state(session)
        roles = [Role(role).name[0] for role in state.roles]
        assert "".join(roles) == "SUAUA"
        assert [message.text for message in state.said][-2:] == ["again", second.text]
        # a user message that waits for its answer does not keep data and questions out
        await house.turn(session, *said, user("again"), assistant(second.text), user("last"), most=1)
        await house.cases.appending.message(session, Role.USER, "no")
        await house.batch(session, "and more")
        assert f"and more\n{WHAT.prompt}" in await _asked(house, session)

    run(tmp_path, story, vocabulary=model, worker_argv=SMALL)
