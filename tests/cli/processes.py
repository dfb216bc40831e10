"""The program as a process of its own, its streams pipes or a pty."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import termios
import time
from collections.abc import Sequence
from typing import Any, Self

from tests.cli.fake_server import DEADLINE

PROGRAM = (sys.executable, "-m", "superfluid_cli")


def run(arguments: Sequence[str], env: dict[str, str], **options: Any) -> subprocess.CompletedProcess[str]:
    """Run to the end with pipes; stdin is empty unless `input` says otherwise."""
    options.setdefault("input", "")
    return subprocess.run(
        [*PROGRAM, *arguments], env=env, capture_output=True, text=True, timeout=DEADLINE, check=False, **options
    )


class OnTerminal:
    """A process whose three streams are one pty; `output` grows as it is read."""

    def __init__(self, arguments: Sequence[str], env: dict[str, str], program: Sequence[str] = PROGRAM) -> None:
        self.output = ""
        self._master, slave = pty.openpty()
        self._data = b""
        self._waited = 0
        self.process = subprocess.Popen(
            [*program, *arguments], env=env, stdin=slave, stdout=slave, stderr=slave, start_new_session=True
        )
        os.close(slave)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(DEADLINE)
        os.close(self._master)

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def echoes(self) -> bool:
        """Whether what is typed is shown, as it is in a shell."""
        return bool(termios.tcgetattr(self._master)[3] & termios.ECHO)

    def read_until(self, text: str) -> str:
        """Read until `text` comes, after what was waited for before. Fails at the end of the output, and in time."""
        while text not in self.output[self._waited :]:
            assert self._read(), f"ended without {text!r}: {self.output!r}"
        self._waited = self.output.index(text, self._waited) + len(text)
        return self.output

    def finish(self) -> int:
        """Read to the end and return the exit code."""
        while self._read():
            pass
        return self.process.wait(DEADLINE)

    def _read(self) -> bool:
        ready, _, _ = select.select([self._master], [], [], DEADLINE)
        assert ready, f"nothing more came: {self.output!r}"
        try:
            piece = os.read(self._master, 1 << 16)
        except OSError:  # what Linux says once the other end is closed
            return False
        self._data += piece
        self.output = self._data.decode(errors="replace")
        return bool(piece)


def read_until(stream: Any, text: bytes) -> bytes:
    """Read a pipe until `text` has come."""
    data = b""
    end = time.monotonic() + DEADLINE
    while text not in data:
        ready, _, _ = select.select([stream], [], [], max(0.0, end - time.monotonic()))
        assert ready, f"nothing more came: {data!r}"
        piece = os.read(stream.fileno(), 1 << 16)
        assert piece, f"ended without {text!r}: {data!r}"
        data += piece
    return data
