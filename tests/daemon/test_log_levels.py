"""Log levels that change while the daemon runs (spec: wire-facts, 8.17)."""

import logging

import pytest

from superfluid.daemon import logging_setup
from superfluid.protocol.refusals import BadLogDirective

NAMES = ("superfluid", "superfluid.left", "superfluid.right")


@pytest.fixture(autouse=True)
def loggers():
    before = {name: logging.getLogger(name).level for name in (*NAMES, *logging_setup.loggers())}
    logging_setup.direct("info")
    yield
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


def levels():
    return [logging.getLevelName(logging.getLogger(name).getEffectiveLevel()) for name in NAMES]


def test_a_level_is_that_of_all():
    logging_setup.direct("debug")
    assert levels() == ["DEBUG"] * 3


def test_a_directive_replaces_the_one_before():
    logging_setup.direct("superfluid.left=debug")
    assert levels() == ["INFO", "DEBUG", "INFO"]
    logging_setup.direct("warn, superfluid.right=error")
    assert levels() == ["WARNING", "WARNING", "ERROR"]
    logging_setup.direct("superfluid.left=info")
    assert levels() == ["WARNING", "INFO", "WARNING"]


@pytest.mark.parametrize(
    "directive", ["debug,superfluid.right=loud", "debug,superfluid.nobody=info", "x=debug", "=debug"]
)
def test_a_bad_one_changes_nothing(directive):
    with pytest.raises(BadLogDirective):
        logging_setup.direct(directive)
    assert levels() == ["INFO"] * 3


def test_an_unknown_logger_is_told_the_known_ones():
    with pytest.raises(BadLogDirective, match=r"superfluid, .*superfluid\.left, .*superfluid\.right"):
        logging_setup.direct("superfluid.lef=info")
