"""Daemons with every transport."""

import pytest

from tests.pyclient.conftest import SOURCES  # which puts the Python client on the path
from tests.support.closing import closing_all
from tests.web.server import Web

__all__ = ["SOURCES"]


def not_run(what):
    """A test that cannot run on this machine: it counts as skipped, and the run's last lines say why."""
    pytest.skip(what)


@pytest.fixture(scope="module")
def houses(tmp_path_factory):
    """A maker of daemons with a browser transport; what a module leaves running is killed."""
    with closing_all(lambda **settings: Web(tmp_path_factory.mktemp("house"), **settings)) as make:
        yield make


@pytest.fixture(scope="module")
def web(houses):
    """A daemon on the fake worker, for a whole module."""
    return houses()
