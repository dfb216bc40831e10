"""The token that every request but `/web/health` shows. Each start of the daemon mints another one."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

BYTES = 32


def mint(path: Path) -> str:
    """A new token, written to `path` so that nobody but this user ever reads it. Raises OSError.

    It comes under a name of its own and is then moved: whoever holds an older file open does not see it, and nobody
    reads half of it.
    """
    token = secrets.token_hex(BYTES)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w") as file:
            os.fchmod(descriptor, 0o600)
            file.write(token)
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
    return token
