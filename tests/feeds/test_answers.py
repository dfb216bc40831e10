"""On the embedded model: what it says of a feed is what the feed says."""

from __future__ import annotations

from superfluid.daemon.feeds.asking import Question
from tests.feeds.house import House, ask, assistant, run, user
from tests.support.daemon import GREEDY
from tests.warmth.stories import SENTENCES, secret

WHAT = "What is the secret word?"
WHAT_SHORT = Question(WHAT, 12, GREEDY)
OTHERS = tuple(Question(text, 8, GREEDY) for text in ("Who walks to the market?", "Say hello.", "What falls?"))


async def _told(house: House, word: str, *, window: int | None = None) -> int:
    session = await house.open(window=window)
    await house.batch(session, SENTENCES[0].strip(), secret(word).strip(), SENTENCES[1].strip())
    return session


def test_answers_over_one_feed(tmp_path):
    async def story(house: House) -> None:
        session, other = await _told(house, "tulip"), await _told(house, "copper")
        for question in OTHERS:
            await ask(house, session, question)
        assert (await ask(house, session, WHAT_SHORT))[0] == "The secret word is tulip."
        assert "copper" in (await ask(house, other, WHAT_SHORT))[0]
        await house.cases.flashing.add(session, WHAT, 12)
        state = await house.fresh(session)
        assert state.feed.flashes[1].value == "The secret word is tulip."
        assert state.feed.flashes[1].confidence > 0
        reply = await house.turn(session, user(WHAT), most=12)
        assert reply.text == "The secret word is tulip."
        said = (user(WHAT), assistant(reply.text))
        await house.batch(session, SENTENCES[2].strip())
        await ask(house, session, OTHERS[0])
        before, length = house.computed, len((await house.state(session)).tokens)
        again = await house.turn(session, *said, user("Say the secret word."), most=12)
        assert "tulip" in again.text
        assert again.cached_tokens >= length - 1
        await house.fresh(session)
        assert house.computed - before < length, "neither the turn nor what came after it began again"

    run(tmp_path, story, worker_argv=())


def test_what_the_window_lets_go_of_is_forgotten(tmp_path):
    async def story(house: House) -> None:
        session = await _told(house, "tulip", window=90)
        assert "tulip" in (await ask(house, session, WHAT_SHORT))[0]
        await house.cases.flashing.add(session, WHAT, 12)
        await house.fresh(session)
        await house.batch(session, secret("copper").strip(), *(sentence.strip() for sentence in SENTENCES[:2]))
        state = await house.fresh(session)
        assert state.feed.evicted == 2
        assert state.feed.tokens <= 90
        answer = (await ask(house, session, Question(WHAT + " ", 12, GREEDY)))[0]
        assert "copper" in answer
        assert "tulip" not in answer
        assert "copper" in str(state.feed.flashes[1].value)
        assert [news.data_version for _, news in house.told] == [1, 2]

    run(tmp_path, story, worker_argv=())
