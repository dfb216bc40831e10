"""Daemons of a test's own. After each test, no daemon's log may hold a traceback."""

import pytest

from tests.durability.house import log_of
from tests.support.daemon import FAKE, Daemon


@pytest.fixture
def daemons(tmp_path):
    """A maker of daemons on the fake worker, one directory for all of them unless named; all end with the test."""
    made = []

    def make(directory=None, **settings):
        daemon = Daemon(directory or tmp_path, **{"worker_argv": list(FAKE), **settings})
        made.append(daemon)
        return daemon

    yield make
    for daemon in made:
        daemon.close()
    for daemon in made:
        for words in (log_of(daemon), daemon.said()):
            assert "Traceback" not in words, words
