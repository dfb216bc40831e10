"""No descriptor is left: clients wait, and the daemon lives on."""

import contextlib
import resource
import socket

import psutil
import pytest

from superfluid_cli.client import ServerSaid
from tests.durability.house import kill_worker, log_of, until
from tests.support.daemon import create, generate, say

WIDE = 4096


@pytest.fixture
def crowded():
    """A maker of idle connections to a daemon; this process may have as many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(WIDE, hard), hard))
    with contextlib.ExitStack() as stack:

        def connect(daemon, count):
            for _ in range(count):
                connection = stack.enter_context(socket.socket(socket.AF_UNIX))
                connection.connect(str(daemon.socket))

        yield connect, stack.close
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def descriptors(daemon):
    return psutil.Process(daemon.process.pid).num_fds()


def test_a_worker_that_dies_while_no_descriptor_is_left(daemons, crowded):
    """Another one comes once there are some again."""
    connect, leave = crowded
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    daemon = daemons().start()
    assert psutil.Process(daemon.process.pid).rlimit(psutil.RLIMIT_NOFILE)[0] > 256, "it has fewer than it may"
    with daemon.client() as client:
        session = create(client)
        say(client, session, "Hello.")
        generate(client, session, 3)
        limit = descriptors(daemon) + 10
        psutil.Process(daemon.process.pid).rlimit(psutil.RLIMIT_NOFILE, (limit, limit))
        connect(daemon, 40)
        until(lambda: descriptors(daemon) == limit)
        kill_worker(daemon)
        until(lambda: "did not come back" in daemon.said())
        leave()
        until(lambda: descriptors(daemon) < limit - 5)
        until(lambda: _serves(client, session))
    assert daemon.stop() == 0
    assert log_of(daemon).count("clients wait to be accepted: ") == 1


def _serves(client, session):
    try:
        return generate(client, session, 3).tokens_generated == 3
    except ServerSaid:  # that no worker is there yet
        return False
