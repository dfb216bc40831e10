"""The directory of parked KV: which artifacts are there, within a budget of bytes; the least recently used go first.

A session has at most one artifact, in a file named after the model and the session: nothing else can be read off
its name. Everything here may vanish or be damaged at any moment: what is lost is time. The order of use survives a
restart as the files' modification times. Files of other models and versions count, and go, like ours, but are never
used.
"""

from __future__ import annotations

import os
import re
import stat
import time
from array import array
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from superfluid.engine.artifact import Damaged, Foreign, Key, Opened, Unusable, open_artifact, read_state
from superfluid.engine.host import HostCopy
from superfluid.engine.logs import say
from superfluid.engine.radix import RadixIndex
from superfluid.protocol.ticks import park_name, unfinished_park_name, unpack

STATELESS = 1 << 53
"""Sessions from here on are in no log, and nobody comes back to them: never parked."""

_NAME = re.compile(r"([0-9a-f]*)-([0-9]{1,20})\.park")
_TEMPORARY = re.compile(r"[0-9a-f]*-[0-9]{1,20}\.writing")


@dataclass(frozen=True, slots=True, eq=False)
class Artifact:
    """One parked sequence; `size` is the file's."""

    session: int
    tokens: array[int]
    first: int
    size: int


def sync(directory: Path) -> None:
    """Make the names in a directory durable. Raises OSError."""
    opened = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


class Parks:
    """The artifacts of one directory, oldest use first. Call `scan` first."""

    def __init__(self, directory: Path, budget: int, key: Key) -> None:
        self._directory = directory
        self._budget = budget
        self.key = key
        self.index: RadixIndex[Artifact] = RadixIndex()
        self._artifacts: dict[int, Artifact] = {}
        self.revision = 0
        """counts what came and went"""
        self._others: dict[str, int] = {}
        """files of ours that are of no use to us, with their sizes, oldest first"""

    @property
    def directory(self) -> Path:
        return self._directory

    @property
    def budget(self) -> int:
        return self._budget

    @property
    def bytes(self) -> int:
        return sum(artifact.size for artifact in self._artifacts.values()) + sum(self._others.values())

    def __len__(self) -> int:
        return len(self._artifacts)

    def __iter__(self) -> Iterator[Artifact]:
        return iter(tuple(self._artifacts.values()))

    def of(self, session: int) -> Artifact | None:
        return self._artifacts.get(session)

    def path(self, session: int) -> Path:
        return self._directory / park_name(self.key.identity, session)

    def temporary(self, session: int) -> Path:
        return self._directory / unfinished_park_name(self.key.identity, session)

    # --- finding --------------------------------------------------------------------------------------------------

    def scan(self) -> None:
        """Make the directory and find what is in it, by the headers alone. Raises OSError where there can be none."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._directory.chmod(0o700)
        found = []
        with os.scandir(self._directory) as entries:
            for entry in entries:
                try:
                    status = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                if stat.S_ISREG(status.st_mode):
                    found.append((status.st_mtime_ns, entry.name, status.st_size))
        for _, name, size in sorted(found):
            if _TEMPORARY.fullmatch(name):
                self._unlink(self._directory / name)
            elif _NAME.fullmatch(name):
                self._enter(name, size)
        self.make_room(0)

    def _enter(self, name: str, size: int) -> None:
        try:
            with self._open(self._directory / name) as file:
                opened = open_artifact(file, self.key)
                header = opened.header
                if name != self.path(header.session).name:
                    raise Foreign("it has the name of another")
            tokens = unpack(header.tokens)
        except (Unusable, OSError, ValueError, MemoryError) as fault:
            self._refused(self._directory / name, size, fault)
            return
        self.add(Artifact(header.session, tokens, header.first, size))

    def _refused(self, path: Path, size: int, fault: Exception) -> None:
        """Remove what is damaged; keep count of what is somebody else's, or could not be read this time."""
        say("info", f"parked KV {path.name} is not used: {fault}")
        if isinstance(fault, Damaged | ValueError):
            self._unlink(path)
        elif not isinstance(fault, FileNotFoundError):
            self._others[path.name] = size

    # --- keeping --------------------------------------------------------------------------------------------------

    def add(self, artifact: Artifact) -> None:
        """Its file is written: it replaces the session's older one, and is the most recently used."""
        self._drop(artifact.session)
        self._others.pop(self.path(artifact.session).name, None)
        self._artifacts[artifact.session] = artifact
        self.index.add(artifact.tokens, artifact)
        self.revision += 1

    def used(self, sessions: Sequence[int], *, lasting: bool = False) -> None:
        """These sessions were used since all others, the first of them last. With `lasting`, the next start finds
        them so."""
        now = time.time_ns()
        for place, session in enumerate(reversed(sessions)):
            if session in self._artifacts:
                self._artifacts[session] = self._artifacts.pop(session)
                if lasting:
                    with suppress(OSError):
                        os.utime(self.path(session), ns=(now + place, now + place))

    def fits(self, size: int, session: int, spared: Collection[int]) -> bool:
        """Whether there is room for an artifact of `session` that replaces its older one, if all others went but
        those of `spared` sessions."""
        kept = (artifact.size for artifact in self if artifact.session in spared and artifact.session != session)
        return size + sum(kept) <= self._budget

    def make_room(self, size: int, session: int | None = None, spared: Collection[int] = ()) -> None:
        """Remove the oldest files, but for those of `spared` sessions, until one of `size` bytes fits that replaces
        `session`'s."""
        mine = self._artifacts.get(session) if session is not None else None
        excess = self.bytes - (mine.size if mine else 0) + size - self._budget
        for name, length in tuple(self._others.items()):
            if excess > 0 and self._unlink(self._directory / name):
                del self._others[name]
                excess -= length
        for artifact in self:
            if excess > 0 and artifact is not mine and artifact.session not in spared:
                self._unlink(self.path(artifact.session))
                self._drop(artifact.session)
                excess -= artifact.size

    def erase(self, sessions: Collection[int]) -> None:
        """No file of these sessions is left in the directory, durably."""
        removed = False
        for session in sessions:
            if session >= STATELESS:
                continue
            self._drop(session)
            self._others.pop(self.path(session).name, None)
            removed |= self._unlink(self.path(session))
        if removed:
            try:
                sync(self._directory)
            except OSError as fault:
                say("warning", f"parked KV: {fault}")

    def _drop(self, session: int) -> None:
        artifact = self._artifacts.pop(session, None)
        if artifact is not None:
            self.index.remove(artifact.tokens, artifact)
            self.revision += 1

    def _unlink(self, path: Path) -> bool:
        try:
            path.unlink()
        except FileNotFoundError:
            return True
        except OSError as fault:
            say("warning", f"parked KV cannot be removed: {fault}")
            return False
        return True

    # --- using ----------------------------------------------------------------------------------------------------

    def read(self, artifact: Artifact) -> HostCopy | None:
        """The whole artifact in host memory, checked; now the most recently used. None, and forgotten, where it is
        not what was found or written."""
        path = self.path(artifact.session)
        try:
            with self._open(path) as file:
                opened = open_artifact(file, self.key)
                if not _same(opened, artifact):
                    raise Foreign("another one has taken its place")
                state = read_state(file, opened)
            os.utime(path)
        except (Unusable, OSError, MemoryError) as fault:
            self._drop(artifact.session)
            self._refused(path, artifact.size, fault)
            return None
        self._artifacts[artifact.session] = self._artifacts.pop(artifact.session)
        return HostCopy(artifact.session, artifact.tokens, state, artifact.first)

    def _open(self, path: Path) -> BinaryIO:
        return os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0)), "rb")

    def check(self) -> None:
        """Raise AssertionError where the books do not balance."""
        assert self.bytes <= self._budget, "more is parked than the budget allows"


def _same(opened: Opened, artifact: Artifact) -> bool:
    header = opened.header
    return header.session == artifact.session and unpack(header.tokens) == artifact.tokens
