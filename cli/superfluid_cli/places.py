"""Where things are when nobody says otherwise. Nothing here touches the disk."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

LONGEST_SOCKET_PATH = 107 if sys.platform.startswith("linux") else 103
"""Bytes that fit a socket address beside the final zero."""


def home(env: Mapping[str, str] = os.environ) -> Path:
    """`$SUPERFLUID_HOME`, else `~/.superfluid`."""
    named = env.get("SUPERFLUID_HOME")
    return Path(named).expanduser() if named else Path("~/.superfluid").expanduser()


def default_socket(env: Mapping[str, str] = os.environ) -> Path:
    """`superfluid.sock` in the home; where that path is too long for a socket, one in the temporary directory."""
    candidates = [home(env) / "superfluid.sock"]
    name = f"superfluid-{os.getuid()}.sock"
    if env.get("TMPDIR"):
        candidates.append(Path(env["TMPDIR"]) / name)
    for candidate in candidates:
        if fits(candidate):
            return candidate
    return Path("/tmp") / name


def default_sessions(env: Mapping[str, str] = os.environ) -> Path:
    return home(env) / "sessions"


def fits(path: Path) -> bool:
    """Whether `path` is short enough for a unix socket."""
    return len(os.fsencode(path)) <= LONGEST_SOCKET_PATH
