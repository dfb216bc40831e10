"""Many lines at once, through the real command: every one is readable or reported dropped, and memory stays flat."""

from __future__ import annotations

import re

import psutil
import pytest

from superfluid.protocol import requests, responses
from tests.feeds.pushing import batches, left, lost, push, readable, report, resolve, settled
from tests.support.daemon import FAKE, Daemon

LINES = 2000
WINDOW = 1024
LEFT_OUT = re.compile(r"the session dropped (\d+) entr(?:y|ies), for which there was no room")


def lines(first: int, count: int = LINES, *, long_every: int = 0) -> list[str]:
    """Numbered readings; each `long_every`-th one is longer than any window."""
    return [
        f"reading {number} of the gauge is {number * number % 9973}" + " and on" * 2000 * _is_long(number, long_every)
        for number in range(first, first + count)
    ]


def _is_long(number: int, every: int) -> bool:
    return bool(every) and number % every == every - 1


def resident(daemon: Daemon) -> int:
    """Bytes of memory that the daemon itself holds, its worker's aside."""
    assert daemon.process is not None
    return psutil.Process(daemon.process.pid).memory_info().rss


def accounted(daemon: Daemon, name: str, given: list[str]) -> None:
    """Every line of `given`, and nothing else, is in the log in order, but for as many as are reported dropped."""
    with daemon.client() as client:
        session = resolve(client, name)
        told, log = settled(client, session), batches(client, session)
        there = readable(client, session)
        assert len(there) + told.total_dropped == len(given) == told.taken == told.total_pushed
        assert told.total_dropped == lost(log)
        assert told.evicted == left(log)
        assert [batch.version for batch in log] == list(range(1, told.data_version + 1))
        left_over = iter(given)
        assert all(line in left_over for line in there), "in order, none twice"
        held = client.ask(requests.Inspect(session), responses.Inspection).inspection.tokens
        kept = there[told.evicted :]
        assert told.frozen_end is not None
        assert len(held) - told.frozen_end <= WINDOW
        assert told.kv_tokens == told.tokens == len(held)
        spans = [entry.span for batch in log for entry in batch.entries][told.evicted :]
        assert all(spans), "what is in the window has been computed"
        assert tuple(token for span in spans for token in span) == held[told.frozen_end :]
        assert len(kept) == len(spans) > 0


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    with Daemon(tmp_path_factory.mktemp("burst"), worker_argv=FAKE, kv_host_bytes=1 << 24) as daemon:
        yield daemon


def test_a_long_file_at_once(daemon):
    a_long_file_at_once(daemon)


@pytest.mark.heavy
def test_a_long_file_to_a_real_model(tmp_path):
    with Daemon(tmp_path) as daemon:
        a_long_file_at_once(daemon)


def a_long_file_at_once(daemon: Daemon) -> None:
    """Lines that are too long for the window are dropped, those of them aside that newer ones push out unseen."""
    given = lines(0, long_every=97)
    pushed = push(daemon, "feed", "--create", "--window", str(WINDOW), "--wait", lines=given)
    assert (pushed.code, pushed.out) == (1, "")
    accounted(daemon, "feed", given)
    with daemon.client() as client:
        session = resolve(client, "feed")
        told, there = report(client, session), readable(client, session)
        assert LEFT_OUT.findall(pushed.err) == [str(told.total_dropped)]
        assert told.total_dropped > 0
        missing = set(given) - set(there)
        assert len(missing) == told.total_dropped
        assert all(len(line) > 1000 for line in missing)
        assert not [line for line in there[told.evicted :] if len(line) > 1000]


def test_memory_stays_flat(daemon):
    given = []
    sizes = []
    for number in range(6):
        some = lines(number * LINES)
        given += some
        pushed = push(daemon, "flat", "--create", "--window", str(WINDOW), "--wait", lines=some)
        assert (pushed.code, pushed.out, pushed.err) == (0, "", "")
        sizes.append(resident(daemon))
    accounted(daemon, "flat", given)
    print("the daemon's memory in MiB after each file:", [size >> 20 for size in sizes])
    assert sizes[-1] < 1.15 * sizes[0]


def test_without_a_window_what_no_longer_fits_is_reported(daemon):
    given = lines(0)
    pushed = push(daemon, "whole", "--create", "--wait", lines=given)
    assert (pushed.code, pushed.out) == (1, "")
    with daemon.client() as client:
        session = resolve(client, "whole")
        told, log, there = settled(client, session), batches(client, session), readable(client, session)
        assert LEFT_OUT.findall(pushed.err) == [str(told.total_dropped)] == [str(lost(log))]
        assert there == given[: len(there)]
        assert len(there) + told.total_dropped == LINES
        assert told.evicted == 0
        assert told.tokens <= 2048 - 512
        assert report(client, session).data_version == len(log)
