"""The options of `superfluid serve` for fill-in-the-middle."""

import pytest

from tests.cli.test_serve import Cli, StandIn, daemon

__all__ = ["daemon"]


def test_every_flag(cli: Cli, daemon: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    flags = "--completion-rate 0.5 --completion-burst 3 --completion-deadline-ms 250"
    assert cli("serve", *flags.split()).code == 0
    config = daemon.configs.pop()
    assert (config.completion_rate, config.completion_burst, config.completion_deadline_ms) == (0.5, 3.0, 250)
    assert cli("serve", "--request-timeout", "9").code == 0
    assert daemon.configs.pop().completion_deadline_ms == 9
    monkeypatch.setenv("SUPERFLUID_COMPLETION_RATE", "0")
    assert cli("serve").code == 0
    config = daemon.configs.pop()
    assert (config.completion_rate, config.completion_burst, config.completion_deadline_ms) == (0.0, 20.0, 0)


@pytest.mark.parametrize(
    ("flag", "value", "expected"),
    [
        ("--completion-rate", "-1", "from 0"),
        ("--completion-rate", "0.0001", "from 0.001"),
        ("--completion-burst", "0.5", "from 1"),
        ("--completion-deadline-ms", "soon", "whole number"),
    ],
)
def test_bad_values(cli: Cli, daemon: StandIn, flag: str, value: str, expected: str) -> None:
    result = cli("serve", flag, value)
    assert result.code == 2
    assert flag in result.err
    assert expected in result.err
    assert daemon.configs == []
