"""Keys as they are pressed, without Enter, from a terminal that is left as it was found."""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from types import TracebackType
from typing import Self

from superfluid_cli import terminal


class Keys:
    """While entered, a terminal on stdin gives each key at once and echoes none; anything else gives no keys."""

    def __init__(self) -> None:
        self._descriptor = -1
        self._before: list[object] = []

    def __enter__(self) -> Self:
        if terminal.on_terminal(sys.stdin):
            self._descriptor = sys.stdin.fileno()
            self._before = termios.tcgetattr(self._descriptor)
            tty.setcbreak(self._descriptor)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._descriptor >= 0:
            termios.tcsetattr(self._descriptor, termios.TCSADRAIN, self._before)  # type: ignore[arg-type]

    def pressed(self, seconds: float) -> bytes:
        """What was pressed within `seconds`: empty where nothing was. A terminal that is gone says Ctrl-D."""
        if self._descriptor < 0:
            time.sleep(seconds)
            return b""
        ready, _, _ = select.select([self._descriptor], [], [], seconds)
        return (os.read(self._descriptor, 64) or b"\x04") if ready else b""
