"""The three streams: who is at their other end, and what may be written there.

Session text is written by models and by strangers. On a terminal it must not move the cursor, set titles or colours.
"""

from __future__ import annotations

import os
import re
import sys
from typing import TextIO

from superfluid_cli.exits import OutputFailed

# C0 without tab and newline, DEL, C1, and the characters that turn the writing direction round.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_UNSHOWN = re.compile("[\x00-\x1f\x7f-\x9f\\\\\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_SHORT = {"\n": "\\n", "\t": "\\t", "\r": "\\r", "\\": "\\\\", "\x1b": "\\e"}


def on_terminal(stream: TextIO | None) -> bool:
    """Whether a person reads or writes at the other end."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False


def colourful(stream: TextIO | None) -> bool:
    """Whether to colour what goes to `stream`: a terminal that can, and no NO_COLOR (no-color.org)."""
    return on_terminal(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def safe(text: str) -> str:
    """`text` for running output on a terminal: control characters but newline and tab left out."""
    return _UNSAFE.sub("", text)


def shown(text: str) -> str:
    """`text` on one line, control characters and backslashes as escapes: for tables, fields and messages."""
    return _UNSHOWN.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    char = match.group()
    if char in _SHORT:
        return _SHORT[char]
    return f"\\x{ord(char):02x}" if ord(char) < 0x100 else f"\\u{ord(char):04x}"


def dim(text: str, stream: TextIO | None) -> str:
    return f"\x1b[2m{text}\x1b[0m" if colourful(stream) else text


def write(text: str) -> None:
    """Put `text` on stdout at once. Raises OutputFailed where it is not taken, BrokenPipeError where nobody reads."""
    if sys.stdout is None:
        raise OutputFailed("stdout is closed")
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as fault:
        raise OutputFailed(f"stdout cannot be written: {fault.strerror or fault}") from None


def line(text: str) -> None:
    write(text + "\n")


def lines(texts: list[str]) -> None:
    """All of `texts`, each on its line, in one write."""
    write("".join(f"{text}\n" for text in texts))


def note(text: str) -> None:
    """A line on stderr, where anybody listens."""
    if sys.stderr is not None:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()


def complain(message: str) -> None:
    """The one line that says why a command failed."""
    one_line = " ".join(part.strip() for part in message.splitlines() if part.strip())
    note(f"superfluid: {_UNSAFE.sub(_escape, one_line)}")
