"""Where the text of a message comes from: the command line, a file, or stdin."""

from __future__ import annotations

import sys
from pathlib import Path

from superfluid_cli import terminal
from superfluid_cli.exits import UsageError


def message(argument: str | None, file: Path | None) -> str:
    """The text of a message: without the newline that ends a file, and not blank."""
    text = raw_text(argument, file)
    if argument is None or argument == "-":
        text = text.removesuffix("\n").removesuffix("\r")
    if not text.strip():
        raise UsageError("the text is empty")
    return text


def raw_text(argument: str | None, file: Path | None) -> str:
    """The text exactly as given, which may not be empty."""
    text = given(argument, file, "TEXT", "--file")
    if not text:
        raise UsageError("the text is empty")
    return text


def given(argument: str | None, file: Path | None, name: str, option: str) -> str:
    """A text exactly as given: the argument `name`, the file of `option`, or stdin. It may be empty."""
    if file is not None:
        if argument is not None:
            raise UsageError(f"both {name} and {option} are given; one is enough")
        try:
            data = file.read_bytes()
        except OSError as fault:
            raise UsageError(f"{option} {file}: {fault.strerror or fault}") from None
        return _decoded(data, f"{option} {file}")
    if argument is None or argument == "-":
        return _decoded(_stdin(name), "stdin")
    try:
        argument.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{name} is not UTF-8") from None
    return argument


def _stdin(name: str) -> bytes:
    if sys.stdin is None or sys.stdin.closed:
        raise UsageError(f"no {name} given, and stdin is closed")
    if terminal.on_terminal(sys.stdin):
        terminal.note("reading the text from the terminal; Ctrl-D on a line of its own ends it")
    try:
        return sys.stdin.buffer.read()
    except OSError as fault:
        raise UsageError(f"no {name} given, and stdin cannot be read: {fault.strerror or fault}") from None


def _decoded(data: bytes, where: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as fault:
        raise UsageError(f"{where} is not UTF-8: byte {fault.start} is {data[fault.start]:#04x}") from None
