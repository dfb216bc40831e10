"""A log in a directory of its own."""

import pytest

from superfluid.store.log import SessionLog


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.db"


@pytest.fixture
def log(path):
    log = SessionLog(path)
    yield log
    log.close()
