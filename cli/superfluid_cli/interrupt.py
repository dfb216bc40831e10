"""Ctrl-C while the daemon talks: heard at once; while a reply is generated it stops the reply, not the program."""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import Any, Self

from superfluid_cli.client import Client, cancel


class Alert:
    """While entered, a signal makes `client` look up from its read, so that Python gets to run the handler.

    A signal that comes between Python's last look for one and the read itself would otherwise wait until the daemon
    says something. A reader of stdout that has left is noticed in the same way. Does nothing outside the main thread,
    where no signal arrives.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._pipe: tuple[int, int] | None = None
        self._previous = -1

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._pipe = os.pipe()
            for end in self._pipe:
                os.set_blocking(end, False)
            self._client.wake, writer = self._pipe
            self._client.outlet = _stdout()
            self._previous = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pipe is not None:
            signal.set_wakeup_fd(self._previous)
            self._client.wake = self._client.outlet = None
            for end in self._pipe:
                os.close(end)


class StopsReply:
    """While entered, SIGINT cancels the generation of `session` over a second connection and sets `interrupted`.

    The handler runs between two reads of `client`, which then goes on to the summary: nothing of the stream is lost.
    Where there is nothing to cancel, and at the second SIGINT, KeyboardInterrupt is raised; hanging up stops the
    generation too.
    """

    def __init__(self, client: Client, session: int) -> None:
        self.interrupted = False
        self._client = client
        self._session = session
        self._alert = Alert(client)
        self._previous: Any = None

    def __enter__(self) -> Self:
        self._alert.__enter__()
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGINT, self._on_interrupt)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)
        self._alert.__exit__(kind, value, trace)

    def _on_interrupt(self, number: int, frame: FrameType | None) -> None:
        again, self.interrupted = self.interrupted, True
        if again or not cancel(self._client.path, self._session):
            raise KeyboardInterrupt


def _stdout() -> int | None:
    try:
        return sys.stdout.fileno()
    except (AttributeError, OSError, ValueError):
        return None
