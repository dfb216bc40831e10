"""A blocking WebSocket client (RFC 6455), enough for tests: text frames out, whole messages in."""

from __future__ import annotations

import base64
import os
import socket
import struct
from collections.abc import Sequence

from tests.support.daemon import DEADLINE

_TEXT, _BINARY, _CLOSE, _PING, _PONG = 1, 2, 8, 9, 10


class Refused(Exception):
    """The other end does not upgrade. `reply` is what it said instead."""

    def __init__(self, reply: bytes) -> None:
        super().__init__(reply.decode("latin-1"))
        self.reply = reply


class Closed(Exception):
    """The other end has closed the WebSocket or the connection."""


class WebSocket:
    """One connection. `headers` are lines, as they are sent."""

    def __init__(self, address: tuple[str, int], path: str, headers: Sequence[str] = ()) -> None:
        self._socket = socket.create_connection(address, DEADLINE)
        self._buffer = bytearray()
        key = base64.b64encode(os.urandom(16)).decode()
        head = [
            f"GET {path} HTTP/1.1",
            f"Host: {address[0]}:{address[1]}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            "Sec-WebSocket-Version: 13",
            f"Sec-WebSocket-Key: {key}",
            *headers,
        ]
        try:
            self._socket.sendall("\r\n".join(head).encode() + b"\r\n\r\n")
            while b"\r\n\r\n" not in self._buffer:
                self._fill()
            said, _, rest = bytes(self._buffer).partition(b"\r\n\r\n")
            if not said.startswith(b"HTTP/1.1 101"):
                raise Refused(bytes(self._buffer))
        except BaseException:
            self._socket.close()
            raise
        self._buffer = bytearray(rest)

    def __enter__(self) -> WebSocket:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up, without goodbye."""
        self._socket.close()

    def send(self, text: str | bytes) -> None:
        """One message: text, or a binary frame."""
        kind = _TEXT if isinstance(text, str) else _BINARY
        try:
            self._send(kind, text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text)
        except (BrokenPipeError, ConnectionResetError) as fault:
            raise Closed from fault

    def receive(self) -> str:
        """The next text message; pings are answered on the way. Raises Closed."""
        message = b""
        while True:
            last, kind, payload = self._frame()
            if kind == _CLOSE:
                raise Closed
            if kind == _PING:
                self._send(_PONG, payload)
            elif kind != _PONG:
                message += payload
                if last:
                    return message.decode()

    def _send(self, kind: int, payload: bytes) -> None:
        size = len(payload)
        if size < 126:
            head = struct.pack("!BB", 0x80 | kind, 0x80 | size)
        elif size < 1 << 16:
            head = struct.pack("!BBH", 0x80 | kind, 0x80 | 126, size)
        else:
            head = struct.pack("!BBQ", 0x80 | kind, 0x80 | 127, size)
        self._socket.sendall(head + bytes(4) + payload)  # masked with zeros

    def _frame(self) -> tuple[bool, int, bytes]:
        first, second = self._take(2)
        size = second & 0x7F
        if size >= 126:
            size = int.from_bytes(self._take(2 if size == 126 else 8), "big")
        return bool(first & 0x80), first & 0xF, self._take(size)

    def _take(self, size: int) -> bytes:
        while len(self._buffer) < size:
            self._fill()
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken

    def _fill(self) -> None:
        try:
            piece = self._socket.recv(1 << 18)
        except ConnectionResetError as fault:
            raise Closed from fault
        if not piece:
            raise Closed
        self._buffer += piece
