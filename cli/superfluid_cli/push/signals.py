"""Ctrl-C and SIGTERM during a push: the first asks it to finish with what it has read, the second ends it."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """While entered, `asked` says whether a signal came; `fileno` becomes readable when one does."""

    def __init__(self) -> None:
        self.asked = False
        self._ends = os.pipe()
        for end in self._ends:
            os.set_blocking(end, False)
        self._before: list[tuple[signal.Signals, Any]] = []
        self._wakeup_before = -1

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._wakeup_before = signal.set_wakeup_fd(self._ends[1], warn_on_full_buffer=False)
            # One that is ignored, as in a script's background jobs, stays so.
            heard = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
            self._before = [(number, signal.signal(number, self._on_signal)) for number in heard]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before:
            signal.signal(number, handler)
        if threading.current_thread() is threading.main_thread():
            signal.set_wakeup_fd(self._wakeup_before)
        for end in self._ends:
            os.close(end)

    def fileno(self) -> int:
        return self._ends[0]

    def heard(self) -> None:
        """Take what made it readable."""
        try:
            os.read(self._ends[0], 64)
        except BlockingIOError:
            pass

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
