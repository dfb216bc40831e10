"""The daemon dies in the middle of pushes at full rate; what its log then says of them is the truth."""

from __future__ import annotations

import itertools
import threading

import httpx
import pytest

from superfluid.protocol import records, requests, responses
from tests.http.server import fake
from tests.support.daemon import DEADLINE, Daemon

NAME = "ticker-feed"
BATCH = 25


class Producer:
    """Pushes numbered lines as fast as it is answered, from the first one that the daemon does not have."""

    def __init__(self, url: str) -> None:
        self.http = httpx.Client(base_url=url, timeout=DEADLINE)
        self.acks: list[dict[str, int]] = []
        self.sent = 0
        self._thread = threading.Thread(target=self._run)

    def get(self) -> dict[str, int]:
        return self.http.get(f"/v1/sessions/{NAME}").raise_for_status().json()

    def push(self, *lines: str) -> dict[str, int]:
        ack = self.http.post(f"/v1/sessions/{NAME}/push", json={"data": lines}).raise_for_status().json()
        self.acks.append(ack)
        return ack

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()

    def start(self, first: int) -> None:
        self.sent = first
        self._thread.start()

    def _run(self) -> None:
        while True:
            lines = [line(number) for number in range(self.sent, self.sent + BATCH)]
            self.sent += BATCH
            try:
                self.push(*lines)
            except httpx.HTTPError:
                return

    def wait_for_version(self, version: int) -> None:
        while self.acks[-1:] == [] or self.acks[-1]["data_version"] < version:
            assert self._thread.is_alive()

    def join(self) -> None:
        self._thread.join(DEADLINE)
        assert not self._thread.is_alive()


def line(number: int) -> str:
    return f"tick {number:06} is worth {number * number}"


def opened(daemon: Daemon) -> int:
    """The id of the session that all of this is about."""
    with httpx.Client(base_url=daemon.url(), timeout=DEADLINE) as http:
        http.post("/v1/sessions", json={"id": NAME, "window": 700}).raise_for_status()
    with daemon.client() as client:
        (session,) = client.ask(requests.List(), responses.Sessions).ids
    return session


def ingested(daemon: Daemon, session: int) -> list[records.Ingested]:
    with daemon.client() as client:
        return [e.body for e in client.read(session) if isinstance(e.body, records.Ingested)]


def texts(batches: list[records.Ingested]) -> list[str]:
    return [entry.text for batch in batches for entry in batch.entries]


def taken(batches: list[records.Ingested]) -> int:
    return sum(len(batch.entries) + batch.dropped for batch in batches)


@pytest.mark.heavy
def test_killed_in_the_middle_of_pushes(tmp_path):
    daemon = Daemon(tmp_path, http={"port": 0}, worker_argv=fake(delay_us=20), max_context=2048).start()
    try:
        session = opened(daemon)
        first = version = 0
        for round_ in range(2):
            with Producer(daemon.url()) as producer:
                producer.start(first)
                producer.wait_for_version(version + 3 + round_)
                daemon.kill()
                producer.join()
            daemon.start()
            batches = ingested(daemon, session)
            kept = texts(batches)
            assert kept == sorted(set(kept)), "in order, and none twice"
            assert kept == [line(number) for number in range(len(kept))], "none is left out without a word"
            assert [batch.version for batch in batches] == list(range(1, len(batches) + 1))
            assert len(batches) >= producer.acks[-1]["data_version"] - 1, "an acknowledgement is of a batch before"
            assert taken(batches) == len(kept) <= producer.sent
            with Producer(daemon.url()) as producer_now:
                state = producer_now.get()
            assert state["data_version"] == len(batches)
            assert state["pending"] == 0
            assert state["evicted"] > 0
            version, first = len(batches), taken(batches)
        # Pushed once more and stopped in an orderly way: nothing that was acknowledged is lost.
        with Producer(daemon.url()) as producer:
            ack = producer.push(*[line(number) for number in range(first, first + 60)])
        assert ack["total_pushed"] == first + 60
        assert daemon.stop() == 0
        daemon.start()
        assert texts(ingested(daemon, session)) == [line(number) for number in range(first + 60)]
    finally:
        daemon.close()


def test_what_overflows_is_counted_also_when_the_daemon_dies(tmp_path):
    """A worker that computes slowly, so that the queue runs over."""
    daemon = Daemon(tmp_path, http={"port": 0}, worker_argv=fake(delay_us=3000), max_context=2048).start()
    try:
        session = opened(daemon)
        with Producer(daemon.url()) as producer:
            for start in itertools.count(step=500):
                ack = producer.push(*[line(number) for number in range(start, start + 500)])
                if ack["total_dropped"] > 700 and ack["data_version"] >= 2:
                    break
        daemon.kill()
        daemon.start()
        batches = ingested(daemon, session)
        kept = [int(text.split()[1]) for text in texts(batches)]
        assert kept == sorted(set(kept))
        ordinal = 0
        for batch in batches:  # what was dropped for a batch lies before what it holds
            numbers = [int(entry.text.split()[1]) for entry in batch.entries]
            assert numbers == list(range(ordinal + batch.dropped, ordinal + batch.dropped + len(numbers)))
            ordinal += batch.dropped + len(numbers)
        assert taken(batches) == ordinal <= ack["total_pushed"]
        with Producer(daemon.url()) as producer:
            state = producer.get()
        assert state["data_version"] == len(batches) >= ack["data_version"] - 1
    finally:
        daemon.close()
