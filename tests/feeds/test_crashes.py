"""The daemon is killed again and again while a feed runs at full rate; `superfluid push` finds it by itself."""

from __future__ import annotations

import re
import threading
from contextlib import ExitStack

import pytest

from superfluid.protocol import records, requests, responses
from superfluid.protocol.feed_responses import Connected, DataUpdated, FeedNews, FlashReady
from superfluid_cli.exits import CliError
from tests.durability.house import fake, until
from tests.feeds.pushing import Push, batches, lost, readable, report, settled
from tests.support.daemon import Daemon

QUERIES = ("which one?", "how many?", "what next?")
LEFT_OUT = re.compile(r"the session dropped (\d+) entr(?:y|ies), for which there was no room")


class Watch(threading.Thread):
    """Looks at the feed and follows its events, through every death of its daemon."""

    def __init__(self, daemon: Daemon, session: int) -> None:
        super().__init__(daemon=True)
        self.lives: list[list[FeedNews]] = []
        """the events that each connection told"""
        self.over = False
        self._daemon = daemon
        self._session = session
        self.start()

    def run(self) -> None:
        while not self.over:
            try:
                with self._daemon.client() as client:
                    news: list[FeedNews] = []
                    self.lives.append(news)
                    for message in client.feed_news(self._session):
                        if isinstance(message, responses.FeedEvent):
                            news.append(message.event)
            except (CliError, AssertionError):  # the daemon died, or is not there again
                continue


def given(count: int, long_every: int) -> list[str]:
    """Numbered lines, some of them too long for the window."""
    return [f"tick {number} " + "again " * (1500 if number % long_every == 3 else 1) for number in range(count)]


def killed_while_it_runs(tmp_path, kills: int) -> None:
    lines = [line.strip() for line in given(3000 * (kills + 1), 41)]
    with Daemon(tmp_path, worker_argv=fake(delay_us=40), max_context=1024) as daemon:
        with daemon.client() as client:
            session = client.ask(requests.Open("feed", 400, False), responses.Opened).session
            for query in QUERIES:
                client.ask(requests.FlashAdd(session, query, 6), responses.Flash)
        watch = Watch(daemon, session)
        versions = [0]
        with Push(daemon, "feed", "--wait", "--retry", "2m", lines=lines) as pushing:
            for kill in range(1, kills + 1):
                with daemon.client() as client:
                    versions += seen(client, session, 2500 * kill)
                daemon.kill()
                assert pushing.process.poll() is None, "it is at it"
                daemon.start()
                with daemon.client() as client:
                    versions.append(report(client, session).data_version)
            ended = pushing.ended()
        with daemon.client() as client:
            told = settled(client, session)
            log, there = batches(client, session), readable(client, session)

            def answered() -> bool:
                flashes = client.ask(requests.FlashList(session), responses.Flashes).entries
                return all(flash.fresh for flash in flashes)

            until(answered)
            flashes = client.ask(requests.FlashList(session), responses.Flashes).entries
            events = client.read(session)
        watch.over = True
        replay = replayed(daemon, session)
        daemon.kill()
        daemon.start()
        assert replayed(daemon, session) == replay
        watch.join(60)
    assert ended.err.count("connected again") == kills
    assert versions == sorted(versions), "no version has gone back"
    assert [batch.version for batch in log] == list(range(1, told.data_version + 1))
    kept = set(there)
    assert there == [line for line in lines if line in kept], "in order, none twice"
    missing = [line for line in lines if line not in kept]
    assert all(len(line) > 1000 for line in missing)
    assert told.total_dropped == lost(log) == len(missing) > 0
    assert LEFT_OUT.findall(ended.err) == [str(len(missing))]
    assert (ended.code, ended.out) == (1, "")
    assert {flash.id: (flash.value, flash.data_version) for flash in flashes} == replay
    answers = [event.body for event in events if isinstance(event.body, records.FlashAnswered)]
    followed(watch.lives, answers)


def seen(client, session: int, taken: int) -> list[int]:
    """The versions that a client sees until so many entries have been taken."""
    versions = []

    def there() -> bool:
        now = report(client, session)
        versions.append(now.data_version)
        return now.taken >= taken

    until(there)
    return versions


def replayed(daemon: Daemon, session: int) -> dict[int, tuple[str, int]]:
    """The answers that somebody is told who begins to follow."""
    with daemon.client() as client:
        news = client.feed_news(session)
        first = next(news).event
        assert isinstance(first, Connected)
        assert first.flash_queries == len(QUERIES)
        answers = [next(news).event for _ in QUERIES]
    assert all(isinstance(answer, FlashReady) for answer in answers)
    return {answer.id: (answer.value, answer.data_version) for answer in answers}


def followed(lives: list[list[FeedNews]], answers: list[records.FlashAnswered]) -> None:
    """What followers were told is what the log says, and nothing older after something newer."""
    durable = {(answer.id, answer.value, answer.data_version) for answer in answers}
    version = 0
    known: dict[int, int] = {}
    for life in lives:
        if not life:
            continue
        assert isinstance(life[0], Connected)
        assert life[0].data_version >= version
        version = life[0].data_version
        replay = [event.id for event in life[1 : 1 + len(known)]]
        assert replay == sorted(known), "first comes what was known"
        for event in life[1:]:
            if isinstance(event, DataUpdated):
                assert event.data_version == version + 1
                version += 1
            else:
                assert isinstance(event, FlashReady)
                assert (event.id, event.value, event.data_version) in durable
                assert event.data_version >= known.get(event.id, 0)
                known[event.id] = event.data_version
    assert len([life for life in lives if life]) > 1


def test_killed_while_a_feed_runs(tmp_path):
    killed_while_it_runs(tmp_path, 2)


@pytest.mark.heavy
def test_killed_again_and_again(tmp_path):
    killed_while_it_runs(tmp_path, 8)


def test_killed_while_several_push(tmp_path):
    """Together they keep more than the queue of a session holds."""
    with Daemon(tmp_path, worker_argv=fake(delay_us=40), max_context=1024) as daemon, ExitStack() as stack:
        with daemon.client() as client:
            session = client.ask(requests.Open("feed", 400, False), responses.Opened).session
        given = [[f"{name} {number}" for number in range(4000)] for name in "abc"]
        pushing = [stack.enter_context(Push(daemon, "feed", "--wait", lines=lines)) for lines in given]
        with daemon.client() as client:
            until(lambda: {line[0] for line in readable(client, session)} == {*"abc"})
        daemon.kill()
        daemon.start()
        assert [push.ended().code for push in pushing] == [0, 0, 0]
        with daemon.client() as client:
            there = readable(client, session)
    for lines in given:
        assert [line for line in there if line[0] == lines[0][0]] == lines
    assert len(there) == sum(map(len, given))
