"""KV on disk, as a purge sees it: files that must be gone."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from superfluid.protocol.ticks import park_name

_LOG = logging.getLogger("superfluid.parked_files")


@dataclass(frozen=True, slots=True)
class ParkedFiles:
    """The directories that may hold KV of this model's sessions."""

    directories: tuple[Path, ...]
    identity: bytes

    def erase(self, sessions: Iterable[int]) -> bool:
        """Remove what is parked of these sessions; whether the disk took it. Blocking."""
        names = [park_name(self.identity, session) for session in sessions]
        try:
            for directory in self.directories:
                gone = [_removed(directory / name) for name in names]
                if any(gone):
                    _sync(directory)
        except OSError as fault:
            _LOG.warning("parked KV could not be erased: %s", fault.strerror)
            return False
        return True


def _removed(path: Path) -> bool:
    try:
        path.unlink()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
