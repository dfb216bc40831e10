"""Whatever is asked of a session beside its life changes nothing of it: random lives, each lived twice."""

from __future__ import annotations

import random

import pytest
import trio

from superfluid.daemon.feeds.asking import Question
from superfluid.daemon.replies.conversing import Turn
from superfluid.protocol.codes import Role
from superfluid.protocol.refusals import Refusal
from superfluid.sessions.state import SessionState
from tests.durability.house import fake
from tests.feeds.house import House, ask, run, system, user
from tests.support.daemon import GREEDY, SAMPLED

LIVES = 4


def _live(seed: int) -> list[tuple[str, int]]:
    """What happens to a session, in order, each with a number of its own."""
    chance = random.Random(seed)
    kinds = chance.choices(("batch", "turn", "edit", "again", "append", "generate"), (5, 5, 1, 1, 1, 1), k=10)
    return [(kind, chance.randrange(1000)) for kind in kinds]


async def _happen(house: House, session: int, kind: str, number: int) -> str:
    """One thing that is part of a session's life; what came of it."""
    said = [(message.role, message.text) for message in (await house.state(session)).said]
    try:
        match kind:
            case "batch":
                await house.batch(session, *(f"tick {number} {place}" for place in range(number % 5 + 1)))
            case "turn":
                sent = (*said, user(f"what of {number}?"))
                text = (await house.turn(session, *sent, most=number % 9 + 1)).text
                now = [(message.role, message.text) for message in (await house.state(session)).said]
                assert now == [*sent, (Role.ASSISTANT, text)], "the conversation is what was sent, and the reply"
                return text
            case "edit":
                kept = said[: number % (len(said) + 1)]
                start = [system(f"be {number}")] if not kept and number % 2 else []
                return (await house.turn(session, *kept, *start, user(f"or {number}?"))).text
            case "again":
                kept = said[: len(said) - 1] or [user("hello")]
                return (await house.turn(session, *kept)).text
            case "append":
                await house.cases.appending.message(session, number % 2 + 1, f"by the way {number}")
            case "generate":
                async with house.cases.generating.generate(session, number % 9 + 1) as generation:
                    await generation.ended.wait()
    except Refusal as refusal:
        return refusal.code
    return ""


async def _noise(house: House, session: int, chance: random.Random, going: list[bool]) -> None:
    """Everything else that may happen to it, without end."""
    flashing, turning = house.cases.flashing, house.cases.turning
    while going[0]:
        number = chance.randrange(1000)
        try:
            match chance.choice(("ask", "leave", "flash", "remove", "warm")):
                case "ask":
                    params = chance.choice((GREEDY, SAMPLED))
                    await ask(house, session, Question(f"is it {number}?", number % 7 + 1, params))
                case "leave":
                    with trio.move_on_after(0.01):
                        await ask(house, session, Question("is it?", 300, GREEDY))
                case "flash":
                    await flashing.add(session, f"what of {number}?", number % 7 + 1)
                case "remove":
                    entries, _ = await flashing.list(session)
                    if entries:
                        await flashing.remove(session, entries[0].id)
                case "warm":
                    with trio.move_on_after(0.05):
                        await turning.warm(session, (Turn(*user(f"what of {number}?")),))
        except Refusal:
            pass
        await trio.sleep(chance.random() / 50)


def _core(state: SessionState) -> tuple[object, ...]:
    """What a session is, but for its id, its flash queries and how many records its log has."""
    feed = state.feed
    return (
        (state.tokens, state.ever, state.tail, state.roles, state.said, state.turns, state.last_finish),
        (feed.entries, feed.version, feed.ingested, feed.evicted, feed.dropped, feed.frozen_end),
    )


@pytest.mark.parametrize("memory", [{}, {"window": 64}, {"recurrent": 1}], ids=["plain", "sliding", "recurrent"])
def test_lives_with_and_without_noise(tmp_path, memory):
    async def lived(house: House, seed: int, *, noisy: bool) -> list[object]:
        session = await house.open(window=60 + seed % 3 * 60, pre_decode=noisy)
        going = [noisy]
        results: list[object] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_noise, house, session, random.Random(seed), going)
            for kind, number in _live(seed):
                while (result := await _happen(house, session, kind, number)) == "session_busy":  # noqa: ASYNC110 - somebody asks
                    await trio.sleep(0.002)
                results.append((kind, result, _core(await house.state(session))))
            going[0] = False
        return results

    async def story(house: House) -> None:
        for seed in range(len(memory), LIVES + len(memory)):
            quiet = await lived(house, seed, noisy=False)
            noisy = await lived(house, seed, noisy=True)
            for one, other in zip(quiet, noisy, strict=True):
                assert one == other, f"life {seed}"

    run(tmp_path, story, worker_argv=fake(end_every=12, **memory), kv_host_bytes=1 << 14)
