"""The token that the daemon asks for, and where it comes from."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from superfluid_client.errors import SuperfluidError

Credential = Callable[[], str]
"""Tells the token as it is now."""


def credential(token: str | None, token_file: str | os.PathLike[str] | None) -> Credential:
    """What was given, else $SUPERFLUID_WEB_TOKEN, else the file that the daemon writes.

    A file is read for every request, since each start of the daemon mints another token.
    """
    if not token and token_file is None:
        token = os.environ.get("SUPERFLUID_WEB_TOKEN")
    if token:
        given = token.strip()
        return lambda: given
    path = Path(token_file) if token_file is not None else _default_file()
    return lambda: _read(path)


def _default_file() -> Path:
    home = os.environ.get("SUPERFLUID_HOME") or "~/.superfluid"
    return Path(home).expanduser() / "sessions" / "web-token"


def _read(path: Path) -> str:
    try:
        token = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as fault:
        reason = fault.strerror if isinstance(fault, OSError) else "it is no token"
        raise SuperfluidError(f"{path}: {reason}; is superfluid serve running with --web?") from fault
    if not token:
        raise SuperfluidError(f"{path}: empty; is superfluid serve starting?")
    return token
