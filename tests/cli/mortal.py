"""A server that dies as by SIGKILL, at any moment and once."""

from __future__ import annotations

import socket
import threading
from typing import Self


class Mortal:
    """Serves every connection of a listening socket in a thread of its own, until it dies."""

    def __init__(self, listener: socket.socket) -> None:
        self.died = threading.Event()
        self._listener = listener
        self._dying = threading.Lock()
        self._open: list[socket.socket] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.die()

    def live(self) -> None:
        """Begin to serve."""
        threading.Thread(target=self._accept, daemon=True).start()

    def die(self) -> None:
        with self._dying:
            if self.died.is_set():
                return
            self._vanish()
            for closing in (self._listener, *self._open):
                try:
                    closing.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
                closing.close()
            self.died.set()

    def _vanish(self) -> None:
        """What goes before its connections do."""

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with self._dying:
                if self.died.is_set():
                    connection.close()
                    return
                self._open.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        raise NotImplementedError
