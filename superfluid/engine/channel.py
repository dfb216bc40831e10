"""Frames between daemon and worker, on a socket that neither side ever waits for while it computes."""

from __future__ import annotations

import math
import select
import socket
from collections import deque

from superfluid.protocol import postcard
from superfluid.protocol.frames import FrameReader, frame
from superfluid.protocol.ticks import WorkerReply, WorkerRequest

_PIECE = 1 << 18


class Closed(Exception):
    """The daemon is gone: its end of the pair is closed. Bytes that make no sense raise DecodeError instead."""


class Channel:
    """The worker's end of the pair. Sending only buffers; `flush` and the reading calls write what fits."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._reader = FrameReader()
        self._inbox: deque[WorkerRequest] = deque()
        self._outbox = bytearray()
        # Not select(), which takes no descriptor from 1024 on: this one has the number that it had in the daemon.
        self._waiting = select.poll()
        self._waiting.register(sock, select.POLLIN)

    def send(self, reply: WorkerReply) -> None:
        """Queue one reply and write what the socket takes at once. Raises Closed."""
        self._outbox += frame(postcard.encode(WorkerReply, reply))
        self.flush()

    def flush(self) -> None:
        """Write as much as the socket takes without waiting. Raises Closed."""
        if not self._outbox:
            return
        sent = 0
        try:
            # A view, so that a long queue is not copied for each piece; released before the queue shrinks.
            with memoryview(self._outbox) as view:
                while sent < len(view):
                    sent += self._sock.send(view[sent : sent + _PIECE])
        except BlockingIOError:
            pass
        except (BrokenPipeError, ConnectionError) as fault:
            raise Closed from fault
        del self._outbox[:sent]

    def poll(self) -> deque[WorkerRequest]:
        """The requests that wait, oldest first, after reading what has arrived; the caller takes from it what it
        handles. Raises Closed at the end of the stream, DecodeError for garbage."""
        self.flush()
        # Asked first, as nothing to read is the rule here, and an error is dear between two rounds.
        while self._waiting.poll(0) and self._read():
            pass
        return self._inbox

    def next(self) -> WorkerRequest:
        """The oldest request; waits for one. Raises Closed, DecodeError."""
        while not self.wait(None):
            pass
        return self._inbox.popleft()

    def wait(self, seconds: float | None) -> bool:
        """Wait for a request, `seconds` at most: whether there is one. Raises Closed, DecodeError."""
        if self.poll():
            return True
        self._waiting.modify(self._sock, select.POLLIN | (select.POLLOUT if self._outbox else 0))
        try:
            self._waiting.poll(None if seconds is None else math.ceil(seconds * 1000))
        finally:
            self._waiting.modify(self._sock, select.POLLIN)
        return bool(self.poll())

    def _read(self) -> bool:
        """Take one piece from the socket: whether there was one."""
        try:
            piece = self._sock.recv(_PIECE)
        except BlockingIOError:
            return False
        except ConnectionError as fault:
            raise Closed from fault
        if not piece:
            raise Closed
        self._reader.feed(piece)
        for payload in self._reader.frames():
            self._inbox.append(postcard.decode(WorkerRequest, payload))
        return True
