"""Settings that hold for every test."""

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "default", deadline=None, derandomize=bool(os.environ.get("CI")), suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("default")


def pytest_terminal_summary(terminalreporter):
    """Say which tests did not run for want of something on this machine."""
    for report in terminalreporter.stats.get("skipped", ()):
        terminalreporter.write_line(f"NOT RUN: {report.longrepr[2].removeprefix('Skipped: ')}")
