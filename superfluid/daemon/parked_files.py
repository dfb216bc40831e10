"""KV on disk, as a purge sees it: files that must be gone."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from superfluid.protocol.ticks import park_name, unfinished_park_name

_LOG = logging.getLogger("superfluid.parked_files")


@dataclass(frozen=True, slots=True)
class ParkedFiles:
    """The directories that may hold KV of this model's sessions."""

    directories: tuple[Path, ...]
    identity: bytes

    def reconcile(self, lives: Callable[[int], bool]) -> None:
        """Remove what is parked of sessions that are gone: a crash may have come between a purge and its files. And
        what was being written when a worker died, whosever it is. To be called while no worker runs."""
        self._erase_where(park_name, lambda session: not lives(session))
        self._erase_where(unfinished_park_name, lambda _: True)

    def _erase_where(self, name: Callable[[bytes, int], str], gone: Callable[[int], bool]) -> None:
        front, _, back = name(self.identity, 0).rpartition("0")
        for directory in self.directories:
            for path in directory.glob(f"{front}*{back}"):
                number = path.name[len(front) : -len(back)]
                if number.isdecimal() and gone(int(number)):
                    self._unlink([name(self.identity, int(number))])

    def erase(self, sessions: Iterable[int]) -> bool:
        """Remove what is parked of these sessions; whether the disk took it. Blocking."""
        names = (park_name, unfinished_park_name)
        return self._unlink([name(self.identity, session) for session in sessions for name in names])

    def _unlink(self, names: Sequence[str]) -> bool:
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
