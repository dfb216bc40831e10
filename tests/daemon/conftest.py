"""Daemons for tests: one for a whole module where tests do not disturb each other, or as many as a test wants."""

import pytest

from superfluid.store.log import SessionLog
from tests.support.closing import closing_all
from tests.support.daemon import Daemon


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A daemon on the embedded model. Tests make sessions of their own and assert about nothing else."""
    with Daemon(tmp_path_factory.mktemp("shared")) as daemon:
        yield daemon


@pytest.fixture
def log(tmp_path):
    log = SessionLog(tmp_path / "log.db")
    yield log
    log.close()


@pytest.fixture
def client(shared):
    with shared.client() as client:
        yield client


@pytest.fixture
def daemons(tmp_path):
    """A maker of daemons; what a test leaves running is killed."""
    with closing_all(lambda **settings: Daemon(tmp_path, **settings)) as make:
        yield make
