"""Ctrl-C while a reply is generated: stop the reply, not the program."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

from superfluid_cli.client import cancel


class StopsReply:
    """While entered, SIGINT cancels the generation of `session` over a second connection and sets `interrupted`.

    The handler runs between two reads of the first connection, which then goes on to the summary: nothing of the
    stream is lost. Where there is nothing to cancel, and at the second SIGINT, KeyboardInterrupt is raised; hanging
    up stops the generation too.
    """

    def __init__(self, path: Path, session: int) -> None:
        self.interrupted = False
        self._path = path
        self._session = session
        self._previous: Any = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGINT, self._on_interrupt)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)

    def _on_interrupt(self, number: int, frame: FrameType | None) -> None:
        again, self.interrupted = self.interrupted, True
        if again or not cancel(self._path, self._session):
            raise KeyboardInterrupt
