"""One daemon per sessions directory: an exclusive lock on `serve.lock`, which says who holds it."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import IO

from superfluid.store.errors import StoreError


class DirectoryLock:
    """Held until `release` or the end of the process, however it ends."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    @classmethod
    def acquire(cls, sessions: Path, socket: Path) -> DirectoryLock:
        """Takes the lock of the directory `sessions`. Raises StoreError naming the holder where there is one."""
        path = sessions / "serve.lock"
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as fault:
            raise StoreError(f"{path}: {fault.strerror}") from fault
        file = os.fdopen(descriptor, "r+", encoding="utf-8", errors="replace")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.fchmod(descriptor, 0o600)  # whatever the umask
        except BlockingIOError:
            holder = _holder(file.read(4096))
            file.close()
            raise StoreError(
                f"{sessions} is in use by another daemon{holder}; `superfluid stop` ends it, "
                "and one beside it needs --sessions, --socket and --http of its own"
            ) from None
        except OSError as fault:
            file.close()
            raise StoreError(f"{path}: {fault.strerror}") from fault
        try:
            file.seek(0)
            file.truncate()
            json.dump({"pid": os.getpid(), "socket": str(socket)}, file)
            file.flush()
        except OSError:
            pass  # a full disk: the lock itself holds, only the name of its holder is missing
        return cls(file)

    def release(self) -> None:
        self._file.close()


def _holder(text: str) -> str:
    try:
        who = json.loads(text)
        return f": process {int(who['pid'])}, socket {who['socket']}"
    except (ValueError, KeyError, TypeError):
        return ""
