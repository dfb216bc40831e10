"""Daemons with a browser transport, each for a whole module."""

import pytest

from tests.pyclient.conftest import SOURCES  # which puts the Python client on the path
from tests.support.closing import closing_all
from tests.web.server import Web, fake

__all__ = ["SOURCES"]


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    """A fake model that draws hashes, at once."""
    web = Web(tmp_path_factory.mktemp("web"))
    yield web
    web.close()


@pytest.fixture(scope="module")
def slow(tmp_path_factory):
    """A fake model that takes 2 ms for a row and never ends a reply; one lane."""
    web = Web(tmp_path_factory.mktemp("slow"), worker_argv=fake(delay_us=2000), max_batch=1)
    yield web
    web.close()


@pytest.fixture
def webs(tmp_path):
    """A maker of daemons on one directory; what a test leaves running is killed."""
    with closing_all(lambda **settings: Web(tmp_path, **settings)) as make:
        yield make
