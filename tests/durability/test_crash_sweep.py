"""A daemon killed at random moments of a random workload loses nothing that a client saw (acceptance line 3)."""

import random
import time

import pytest

from tests.durability.house import fake
from tests.durability.workload import Clients, Ledger, check


def sweep(daemon, seed, kills, longest):
    """Kill a daemon so many times, each a random moment after its clients began; check after each start."""
    chance = random.Random(seed)
    ledger = Ledger()
    for turn in range(kills):
        daemon.start()
        check(daemon, ledger)
        clients = Clients(daemon, ledger, f"{seed}.{turn}", 4)
        time.sleep(chance.uniform(0.02, longest))
        daemon.kill()
        clients.finish()
    daemon.start()
    check(daemon, ledger)
    assert daemon.stop() == 0
    # A stop in peace loses nothing either.
    daemon.start()
    check(daemon, ledger)
    return ledger


def test_five_kills(daemons):
    ledger = sweep(daemons(worker_argv=fake(delay_us=300, end_every=40)), "five", 5, 0.8)
    assert sum(map(len, ledger.events.values())) > 50


@pytest.mark.heavy
@pytest.mark.parametrize("part", range(3))
def test_thirty_kills(daemons, part):
    ledger = sweep(daemons(worker_argv=fake(delay_us=300, end_every=40), max_batch=3), f"thirty.{part}", 10, 2.0)
    assert sum(map(len, ledger.events.values())) > 500
    assert ledger.purged


@pytest.mark.heavy
def test_kills_with_the_real_model(daemons):
    ledger = sweep(daemons(worker_argv=[]), "real", 3, 6.0)
    assert sum(map(len, ledger.events.values())) > 50
