"""How much KV may lie in host memory while the machine runs short of it."""

import pytest

from superfluid.daemon.engine.pressure import budget
from superfluid.protocol import requests, responses
from tests.support.daemon import Daemon, create, generate, say

FULL = 1 << 30


@pytest.mark.parametrize(
    ("now", "used", "after"),
    [
        (FULL, 50, FULL),
        (FULL, 80, FULL),
        (FULL, 85, FULL // 2),
        (FULL // 2, 99, FULL // 4),
        (FULL // 4, 80, FULL // 4),
        (FULL // 4, 70, FULL // 2),
        (0, 10, FULL // 16),
        (1, 99, 0),
    ],
)
def test_budget(now, used, after):
    assert budget(now, FULL, used, 85, 70) == after


def test_it_halves_to_nothing_and_comes_back_whole():
    now = FULL
    for _ in range(40):
        now = budget(now, FULL, 99, 85, 70)
    assert now == 0
    for _ in range(40):
        now = budget(now, FULL, 20, 85, 70)
    assert now == FULL


def test_under_pressure_nothing_stays_in_host_memory(tmp_path):
    """`high` 0: the machine is always short. Sessions go on, from sequences or from their logs."""
    with Daemon(tmp_path, max_batch=1, pressure=(0, 0)) as daemon, daemon.client() as client:
        sessions = [create(client) for _ in range(6)]
        seen = set()
        for turn in range(40):
            for session in sessions:
                say(client, session, f"Number {turn}.")
                generate(client, session, 2)
            report = client.ask(requests.Status(), responses.StatusReport)
            seen.add(report.kv_sessions[1])
            if turn and report.kv_sessions[1] == 0:
                break
        assert report.kv_sessions[1] == 0, seen
