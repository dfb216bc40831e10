"""Where the entries of a push come from: the command line, a file, or a pipe that may never end."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from superfluid_cli import terminal
from superfluid_cli.exits import CliError, UsageError
from superfluid_cli.push.lines import Lines

PIECE = 1 << 16
"""Bytes of one read, which is what a pipe holds."""


class Source(Protocol):
    """Entries, some at a time. `read` may block, but not where `fileno` is readable or None."""

    ended: bool

    @property
    def too_long(self) -> int:
        """How many entries were left out for their length."""
        ...

    def fileno(self) -> int | None: ...

    def read(self) -> Iterator[str]: ...

    @property
    def begun(self) -> bool:
        """Whether an entry has come in part, and only so."""
        ...

    def stop(self) -> None:
        """Take no more."""
        ...


class Words:
    """Entries of the command line."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = words
        self.ended = False
        self.begun = False
        self.too_long = 0

    def fileno(self) -> int | None:
        return None

    def read(self) -> Iterator[str]:
        self.ended = True
        return iter(self._words)

    def stop(self) -> None:
        self.ended = True


class Stream:
    """Entries of a file or a pipe, which errors call `name`. Its end completes the last one."""

    def __init__(self, descriptor: int, separator: bytes, name: str) -> None:
        self._descriptor = descriptor
        self._name = name
        self._lines = Lines(separator)
        self.ended = False

    @property
    def too_long(self) -> int:
        return self._lines.too_long

    def fileno(self) -> int | None:
        return self._descriptor

    def read(self) -> Iterator[str]:
        try:
            data = os.read(self._descriptor, PIECE)
        except BlockingIOError:
            return iter(())
        except OSError as fault:
            raise CliError(f"{self._name} cannot be read: {fault.strerror or fault}") from None
        if data:
            return self._lines.feed(data)
        self.ended = True
        return self._lines.end()

    @property
    def begun(self) -> bool:
        return self._lines.begun

    def stop(self) -> None:
        self.ended = True


def source(words: Sequence[str], file: Path | None, nul: bool) -> Source:
    """What the command line says: words, a file, or stdin where it says neither."""
    separator = b"\0" if nul else b"\n"
    if file is not None:
        if words:
            raise UsageError("both TEXT and --file are given; one is enough")
        try:
            return Stream(os.open(file, os.O_RDONLY | os.O_CLOEXEC), separator, f"--file {file}")
        except OSError as fault:
            raise UsageError(f"--file {file}: {fault.strerror or fault}") from None
    if words and list(words) != ["-"]:
        try:
            "".join(words).encode()
        except UnicodeEncodeError:
            raise UsageError("TEXT is not UTF-8") from None
        if not all(word.strip() for word in words):
            raise UsageError("the text is empty")
        return Words(words)
    if sys.stdin is None or sys.stdin.closed:
        raise UsageError("no TEXT given, and stdin is closed")
    if terminal.on_terminal(sys.stdin):
        terminal.note("reading lines from the terminal; Ctrl-D on a line of its own ends them")
    return Stream(sys.stdin.fileno(), separator, "stdin")
