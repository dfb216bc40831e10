"""Daemons with an HTTP listener, each for a whole module."""

import pytest

from tests.http.server import Server, fake
from tests.support.closing import closing_all


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The embedded model."""
    server = Server(tmp_path_factory.mktemp("server"))
    yield server
    server.close()


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """A fake model that draws hashes, at once."""
    server = Server(tmp_path_factory.mktemp("quick"), worker_argv=fake())
    yield server
    server.close()


@pytest.fixture(scope="module")
def slow(tmp_path_factory):
    """A fake model that takes 2 ms for a row and never ends a reply."""
    server = Server(tmp_path_factory.mktemp("slow"), worker_argv=fake(delay_us=2000))
    yield server
    server.close()


@pytest.fixture
def servers(tmp_path):
    """A maker of daemons on one directory; what a test leaves running is killed."""
    with closing_all(lambda **settings: Server(tmp_path, **{"worker_argv": fake(), **settings})) as make:
        yield make
