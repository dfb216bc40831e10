"""The embedded model beside a feed that never rests: it answers questions over it, and others do not wait for it."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable

import pytest

from superfluid.protocol import requests, responses
from superfluid_cli.client import Client
from tests.durability.house import Beside
from tests.feeds.pushing import Push, batches, left, lost, readable, settled
from tests.support.daemon import GREEDY, Daemon, create, say

LINES = 300
EACH = 0.25
"""Seconds between two lines."""

ASKED_EACH = 5.0
CHATS = 5
SLOWER = 3.0
"""How much later a chat elsewhere may begin than without the feed."""


def line(number: int) -> str:
    return f"{number}: hall {number % 5} has {number * 37 % 41} degrees"


def write(pushing: Push, done: threading.Event) -> None:
    began = time.monotonic()
    for number in range(LINES):
        pushing.write(line(number))
        time.sleep(max(0.0, began + (number + 1) * EACH - time.monotonic()))
    done.set()


def each(seconds: float, done: threading.Event, work: Callable[[int], object]) -> list[object]:
    """Do something so often until it is done, and once more."""
    results = [work(0)]
    while not done.wait(seconds):
        results.append(work(len(results)))
    return results


def starts(client: Client, number: int) -> float:
    """Seconds from asking for a reply on a session of its own to its first token."""
    session = create(client, GREEDY)
    text = (
        f"Chat {number}. Tell me what a lighthouse keeper does all day long, and why ships need the light at night."
    )
    say(client, session, text)
    began = time.monotonic()
    reply = client.generate(session, 2)
    next(reply)
    took = time.monotonic() - began
    assert isinstance([*reply][-1], responses.Generated)
    return took


@pytest.mark.heavy
def test_a_feed_at_its_pace(tmp_path):
    done = threading.Event()
    with Daemon(tmp_path) as daemon, daemon.client() as asker, daemon.client() as chatter, daemon.client() as client:
        session = client.ask(requests.Open("halls", 1024, False), responses.Opened).session
        starts(chatter, 99)
        alone = [starts(chatter, number) for number in range(CHATS)]

        def ask(number: int) -> responses.Answer:
            question = requests.Ask(session, f"Question {number}: which hall is the warmest?", 8, GREEDY, (), (), 2.0)
            *pieces, answer = asker.question(question)
            assert isinstance(answer, responses.Answer)
            assert "".join(piece.text for piece in pieces) == answer.text
            assert 0 < answer.completion_tokens <= 8
            return answer

        with Push(daemon, "halls", "--wait") as pushing:
            writing = Beside(write, pushing, done)
            asking = Beside(each, ASKED_EACH, done, ask)
            beside = []
            while len(beside) < CHATS:
                done.wait(LINES * EACH / (CHATS + 1))
                assert not done.is_set(), "the feed runs meanwhile"
                beside.append(starts(chatter, 50 + len(beside)))
            writing.result()
            answers = asking.result()
            ended = pushing.ended()
        assert (ended.code, ended.out, ended.err) == (0, "", "")
        told, log, there = settled(client, session), batches(client, session), readable(client, session)
    assert there == [line(number) for number in range(LINES)]
    assert (told.taken, told.total_dropped) == (LINES, 0)
    assert (told.evicted, lost(log)) == (left(log), 0)
    assert told.evicted > 0
    assert [batch.version for batch in log] == list(range(1, told.data_version + 1))
    versions = [answer.data_version for answer in answers]
    assert len(versions) > 3
    assert versions == sorted(versions)
    assert versions[-1] > versions[1] > 0
    ratio = statistics.median(beside) / statistics.median(alone)
    print(
        f"{len(answers)} answers over {len(log)} batches; a chat begins after {statistics.median(alone):.2f} s alone,"
    )
    print(f"after {statistics.median(beside):.2f} s beside the feed: {ratio:.1f} times")
    assert ratio < SLOWER
