"""Telling the operator without depending on it: stderr may be closed, or a file on the disk that is full."""

from __future__ import annotations

import logging
from collections.abc import Callable

from superfluid.daemon.config import Observer, ServerInfo

_LOG = logging.getLogger("superfluid.server")


class Telling:
    """An Observer around another, whose failures end nothing. What it notices goes into the log too."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    def loading(self, permille: int) -> None:
        _try(lambda: self._observer.loading(permille))

    def ready(self, info: ServerInfo) -> None:
        _try(lambda: self._observer.ready(info))

    def notice(self, text: str) -> None:
        _LOG.warning("%s", text)
        _try(lambda: self._observer.notice(text))


def _try(tell: Callable[[], None]) -> None:
    try:
        tell()
    except OSError as fault:
        _LOG.warning("nobody hears what the daemon says: %s", fault.strerror or fault)
