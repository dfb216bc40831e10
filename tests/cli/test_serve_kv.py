"""The options of `superfluid serve` for KV and the queue."""

from pathlib import Path

import pytest

from tests.cli.test_serve import Cli, StandIn, daemon

__all__ = ["daemon"]


def test_every_flag(cli: Cli, daemon: StandIn) -> None:
    flags = (
        "--kv-type q8_0 --park --park-dir /somewhere/else --park-budget-gb 1.5 --pin-budget-pct 0 "
        "--class-lanes background=2,agent=6 --max-queue 9 --pressure-high 90 --pressure-low 60"
    )
    assert cli("serve", *flags.split()).code == 0
    config = daemon.configs[0]
    assert (config.kv_type, config.park, config.park_dir) == ("q8_0", True, Path("/somewhere/else"))
    assert (config.park_bytes, config.pin_budget_pct) == (3 << 29, 0)
    assert (config.class_lanes, config.max_queue, config.pressure) == (((3, 2), (2, 6)), 9, (90, 60))


def test_defaults_and_environment(cli: Cli, daemon: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli("serve").code == 0
    config = daemon.configs[0]
    assert (config.kv_type, config.park, config.park_dir, config.park_bytes) == ("f16", False, None, 20 << 30)
    assert (config.class_lanes, config.max_queue, config.pressure) == ((), 256, (85, 70))
    assert cli("serve", "--no-os-pressure").code == 0
    assert daemon.configs.pop().pressure is None
    monkeypatch.setenv("SUPERFLUID_PARK", "1")
    monkeypatch.setenv("SUPERFLUID_PARK_BUDGET_GB", "512MiB")
    assert cli("serve").code == 0
    assert (daemon.configs[1].park, daemon.configs[1].park_bytes) == (True, 512 << 20)
    assert cli("serve", "--no-park").code == 0
    assert daemon.configs[2].park is False


@pytest.mark.parametrize(
    ("flag", "value", "expected"),
    [
        ("--kv-type", "q5", "f16, q8_0, q4_0"),
        ("--park-budget-gb", "much", "expected a size"),
        ("--pin-budget-pct", "101", "100"),
        ("--class-lanes", "background", "class=N"),
        ("--class-lanes", "nobody=2", "interactive"),
        ("--class-lanes", "agent=0", "1"),
        ("--max-queue", "0", "1"),
        ("--pressure-low", "85", "below --pressure-high"),
    ],
)
def test_bad_values(cli: Cli, daemon: StandIn, flag: str, value: str, expected: str) -> None:
    result = cli("serve", flag, value)
    assert result.code == 2
    assert flag in result.err
    assert expected in result.err
    assert daemon.configs == []
