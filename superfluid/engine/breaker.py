"""Asks in the middle of a decode whether to give it up, where the library's backend can: on processors."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import llama_cpp.llama_cpp as c

_ASK_SECONDS = 0.005


class Breaker:
    """Lets llama.cpp ask between two operations whether to give up.

    It asks a thousand times a decode and takes the interpreter's lock for each, so that only long ones should have a
    breaker, and most questions are answered by the clock.
    """

    def __init__(self, context: Any, stop: Callable[[], bool]) -> None:
        self._context = context
        self._stop = stop
        self._next = 0.0
        self._fault: BaseException | None = None
        self._callback = c.ggml_abort_callback(self._asked)

    def _asked(self, _: object) -> bool:
        now = time.perf_counter()
        if now < self._next:
            return False
        self._next = now + _ASK_SECONDS
        try:
            return self._stop()
        except BaseException as fault:  # it cannot pass through C; raised once that has returned
            self._fault = fault
            return True

    def __enter__(self) -> None:
        c.llama_set_abort_callback(self._context, self._callback, None)

    def __exit__(self, *_: object) -> None:
        c.llama_set_abort_callback(self._context, c.ggml_abort_callback(), None)
        if self._fault is not None:
            raise self._fault
