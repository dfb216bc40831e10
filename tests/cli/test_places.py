import os
from pathlib import Path

import pytest

from superfluid_cli import places

UID = os.getuid()
LONG = "/" + "x" * 120


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, Path("~/.superfluid/superfluid.sock").expanduser()),
        ({"SUPERFLUID_HOME": "/srv/sf"}, Path("/srv/sf/superfluid.sock")),
        ({"SUPERFLUID_HOME": ""}, Path("~/.superfluid/superfluid.sock").expanduser()),
        ({"SUPERFLUID_HOME": LONG, "TMPDIR": "/var/tmp"}, Path(f"/var/tmp/superfluid-{UID}.sock")),
        ({"SUPERFLUID_HOME": LONG, "TMPDIR": LONG}, Path(f"/tmp/superfluid-{UID}.sock")),
        ({"SUPERFLUID_HOME": LONG}, Path(f"/tmp/superfluid-{UID}.sock")),
    ],
)
def test_default_socket(env: dict[str, str], expected: Path) -> None:
    assert places.default_socket(env) == expected


def test_sessions_are_in_the_home() -> None:
    assert places.default_sessions({"SUPERFLUID_HOME": "/srv/sf"}) == Path("/srv/sf/sessions")


def test_the_limit_counts_bytes() -> None:
    assert places.fits(Path("/" + "x" * (places.LONGEST_SOCKET_PATH - 1)))
    assert not places.fits(Path("/" + "x" * places.LONGEST_SOCKET_PATH))
    assert not places.fits(Path("/" + "é" * (places.LONGEST_SOCKET_PATH // 2 + 1)))
