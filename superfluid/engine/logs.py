"""The worker's log: lines on stderr, which the daemon reads, each with its level in front.

Only the C library's lines and our own: neither ever holds a session's text. A full pipe drops lines rather than
stop a round.
"""

from __future__ import annotations

import os
import select
import sys
from collections import deque

LEVELS = {1: "debug", 2: "info", 3: "warning", 4: "error"}
"""The C library's levels by number. 5 continues the line before; 0 is plain output."""
_CONTINUES = 5
_LONGEST = 2048
"""Under PIPE_BUF, so that a line that select lets through never blocks and never mixes with another."""


def say(level: str, text: str) -> None:
    """Write one line to stderr, or drop it where nobody reads."""
    line = f"{level}: {text}".replace("\n", " ").encode(errors="replace")[:_LONGEST] + b"\n"
    try:
        stderr = sys.stderr.fileno()
        if select.select([], [stderr], [], 0)[1]:
            os.write(stderr, line)
    except (OSError, ValueError):
        pass


class LineLog:
    """Puts the C library's pieces together to lines, and remembers the last that are more than debugging."""

    def __init__(self) -> None:
        self._level = 0
        self._piece = ""
        self._lines: deque[tuple[int, str]] = deque(maxlen=400)

    def piece(self, level: int, text: str) -> None:
        """Take what the library printed: part of a line, or several."""
        if level != _CONTINUES:
            if self._piece:
                self._finish()
            self._level = level
        *whole, rest = text.split("\n")
        for line in whole:
            self._piece += line
            self._finish()
        self._piece += rest

    def errors(self) -> str:
        """The last three error lines, oldest first, joined."""
        lines = [line for level, line in self._lines if level == 4]
        return "; ".join(lines[-3:])

    def lines(self) -> list[str]:
        return [line for _, line in self._lines]

    def forget(self) -> None:
        self._lines.clear()

    def _finish(self) -> None:
        line, self._piece = self._piece.strip(), ""
        if not line.strip("."):
            return
        if self._level != 1:  # hundreds of lines about a graph would push out what is asked for
            self._lines.append((self._level, line))
            say(LEVELS.get(self._level, "info"), line)
