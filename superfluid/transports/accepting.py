"""Accepting connections, also while the process has no descriptor left for another one."""

from __future__ import annotations

import errno
import logging
import math
import socket

import trio

_LOG = logging.getLogger("superfluid.accepting")

SHORT = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})
"""Errors that say that there is no room now: whoever knocks waits."""

PAUSE = 0.1
"""Seconds before it is tried again."""

SILENCE = 60.0
"""Seconds between two words about it in the log."""


class PatientListener(trio.abc.Listener[trio.SocketStream]):
    """A listening socket of ours, which it closes. It says in the log that clients wait, and not with every try."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = trio.SocketListener(trio.socket.from_stdlib_socket(listener))
        self._said = -math.inf

    async def accept(self) -> trio.SocketStream:
        while True:
            try:
                return await self._listener.accept()
            except OSError as fault:
                if fault.errno not in SHORT:
                    raise
                self._say(fault)
            await trio.sleep(PAUSE)

    def _say(self, fault: OSError) -> None:
        now = trio.current_time()
        if now - self._said >= SILENCE:
            self._said = now
            _LOG.warning("clients wait to be accepted: %s", fault.strerror)

    async def aclose(self) -> None:
        await self._listener.aclose()
