"""Disks that are full when a test says so."""

from __future__ import annotations

import os
import resource
import subprocess
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil


class LimitedFiles:
    """No file of the daemon may grow past a size: as a full disk, for the log and for all else that it writes."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def fill(self, pid: int) -> None:
        log = max(self.directory.rglob("*.db-wal"), key=lambda path: path.stat().st_size)
        psutil.Process(pid).rlimit(psutil.RLIMIT_FSIZE, (log.stat().st_size // 2, resource.RLIM_INFINITY))

    def free(self, pid: int) -> None:
        psutil.Process(pid).rlimit(psutil.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


class SmallDisk:
    """A file system of its own, of a few megabytes, and a file that takes what is left of it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._ballast = directory / "ballast"

    def fill(self, pid: int) -> None:
        with self._ballast.open("ab", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                pass

    def free(self, pid: int) -> None:
        self._ballast.unlink()


@contextmanager
def mounted(directory: Path, *options: str):
    """A tmpfs at `directory`; whether mounting is allowed here."""
    directory.mkdir(exist_ok=True)
    with ExitStack() as stack:
        command = ["mount", "-t", "tmpfs", *(("-o", ",".join(options)) if options else ()), "none", str(directory)]
        try:
            allowed = subprocess.run(command, capture_output=True, check=False).returncode == 0
        except OSError:
            allowed = False
        if allowed:
            stack.callback(subprocess.run, ["umount", "-l", str(directory)], check=True, capture_output=True)
        yield allowed


@contextmanager
def full_disk(directory: Path):
    """The most real disk to be had here that can be full: a small one, else files that may not grow."""
    with mounted(directory, "size=4m") as allowed:
        yield SmallDisk(directory) if allowed else LimitedFiles(directory)


@contextmanager
def unwritable(directory: Path):
    """A directory that not even root can write to: on a read-only file system, else below a plain file."""
    with mounted(directory, "ro") as allowed:
        if allowed:
            yield directory / "sessions"
        else:
            plain = directory / "plain"
            plain.write_bytes(os.urandom(8))
            yield plain / "sessions"
