"""A fork of a feed that the embedded model was told answers about its past, while the feed goes on."""

from __future__ import annotations

from superfluid.daemon.feeds.asking import Question
from tests.feeds.house import House, ask, run, user
from tests.support.daemon import GREEDY
from tests.warmth.stories import SENTENCES, secret

WHAT = "What is the secret word?"
WORDS = ("tulip", "copper", "banana")


async def _says(house: House, session: int, word: str) -> bool:
    answer = (await ask(house, session, Question(WHAT, 10, GREEDY)))[0]
    return word in answer and not any(other in answer for other in WORDS if other != word)


def test_a_fork_answers_about_the_past(tmp_path):
    """In a window that holds one word at a time."""

    async def story(house: House) -> None:
        session = await house.cases.feeds.open("words", 60, False)
        known = {}
        for word in WORDS:
            house.cases.feeds.push(session, (SENTENCES[0].strip(), secret(word).strip()))
            await house.settled(session)
            await house.quiet()
            assert await _says(house, session, word)
            known[word] = (await house.state(session)).events
        forks = {word: await house.cases.branching.fork(session, at, None) for word, at in known.items()}
        for word, fork in forks.items():
            assert await _says(house, fork, word)
        assert await _says(house, session, WORDS[-1])
        # what is pushed into a fork, or said there, stays there
        house.cases.feeds.push(forks["tulip"], (secret("copper").strip(),))
        await house.settled(forks["tulip"])
        reply = await house.turn(forks["copper"], user(WHAT), most=10)
        assert "copper" in reply.text
        assert await _says(house, session, WORDS[-1])
        assert await _says(house, forks["tulip"], "copper")
        assert (await house.state(session)).feed.taken == 2 * len(WORDS)

    run(tmp_path, story, worker_argv=())
