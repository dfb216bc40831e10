"""A blocking client of the daemon's unix socket: one request at a time, in order."""

from __future__ import annotations

import os
import select
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from superfluid.protocol import postcard, requests, responses
from superfluid.protocol.errors import DecodeError
from superfluid.protocol.frames import FrameReader, frame
from superfluid.protocol.records import Event
from superfluid.protocol.wire import U64_MAX
from superfluid_cli import places
from superfluid_cli.exits import ConnectionBroken, NoDaemon, ServerSaid, UsageError
from superfluid_cli.values import IdOrName

_Reply = TypeVar("_Reply")
_PIECE = 1 << 18

LOOK = 1.0
"""Seconds between two words about a silence."""

CANCEL_SECONDS = 5.0
"""How long `cancel` waits for a daemon that does not answer."""


class Client:
    """One connection. Raises NoDaemon where nothing answers, ConnectionBroken where the talk ends in the middle.

    `timeout` is seconds for each send and receive; None waits as long as the model takes.
    """

    def __init__(self, path: Path, timeout: float | None = None) -> None:
        if not places.fits(path):
            raise UsageError(f"socket path {path} is too long: at most {places.LONGEST_SOCKET_PATH} bytes fit")
        self.path = path
        self.wake: int | None = None
        """a descriptor that becomes readable when a signal came (see `interrupt.Alert`)"""
        self.outlet: int | None = None
        """a descriptor whose reader may leave, beside `wake`"""
        self.unheard: Callable[[float], None] | None = None
        """told every LOOK seconds for how long nothing has come, beside `wake`"""
        self._reader = FrameReader()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(timeout)
        try:
            self._socket.connect(str(path))
        except OSError as fault:
            self._socket.close()
            raise NoDaemon(_no_daemon(path, fault)) from None
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Hang up; a generation in progress on this connection is cancelled by that."""
        self._socket.close()

    def fileno(self) -> int:
        """The connection, for those who wait for several things at once."""
        return self._socket.fileno()

    def peer_pid(self) -> int | None:
        """The process that listens at the other end, 0 where it is out of sight; None where nobody can tell."""
        if sys.platform != "linux":
            return None
        told = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        pid: int = struct.unpack("3i", told)[0]
        return pid

    def call(self, request: requests.Request) -> responses.Response:
        """The reply to `request`. Raises ServerSaid where the daemon refuses."""
        self._send(request)
        return self._receive()

    def ask(self, request: requests.Request, kind: type[_Reply]) -> _Reply:
        """The reply to `request`, which must be of the type `kind`."""
        reply = self.call(request)
        if not isinstance(reply, kind):
            raise _unexpected(reply)
        return reply

    def complete(self, request: requests.Complete) -> responses.Completion | responses.Throttled:
        """The middle between two texts, or how long to wait before asking again."""
        reply = self.call(request)
        if not isinstance(reply, responses.Completion | responses.Throttled):
            raise _unexpected(reply)
        return reply

    def generate(self, session: int, max_tokens: int) -> Iterator[responses.Delta | responses.Generated]:
        """A Delta for each committed event as it comes, and the Generated summary last."""
        self._send(requests.Generate(session, max_tokens))
        while True:
            reply = self._receive()
            if not isinstance(reply, responses.Delta | responses.Generated):
                raise _unexpected(reply)
            yield reply
            if isinstance(reply, responses.Generated):
                return

    def subscribe(
        self, session: int, cursor: int, provisional: bool
    ) -> Iterator[responses.SubEvent | responses.SubProvisional | responses.SubEnded]:
        """What the daemon publishes about a session from event `cursor` on; SubEnded is last."""
        self.ask(requests.Subscribe(session, cursor, provisional), responses.Subscribed)
        while True:
            reply = self._receive()
            if not isinstance(reply, responses.SubEvent | responses.SubProvisional | responses.SubEnded):
                raise _unexpected(reply)
            yield reply
            if isinstance(reply, responses.SubEnded):
                return

    def question(self, request: requests.Ask) -> Iterator[responses.AskPiece | responses.Answer]:
        """The pieces of an answer as they come, and the Answer last."""
        self._send(request)
        while True:
            reply = self._receive()
            if not isinstance(reply, responses.AskPiece | responses.Answer):
                raise _unexpected(reply)
            yield reply
            if isinstance(reply, responses.Answer):
                return

    def feed_news(self, session: int) -> Iterator[responses.FeedEvent | responses.SubEnded]:
        """What happens to a session's data and flash queries; SubEnded is last."""
        self.ask(requests.FeedSubscribe(session), responses.Subscribed)
        while True:
            reply = self._receive()
            if not isinstance(reply, responses.FeedEvent | responses.SubEnded):
                raise _unexpected(reply)
            yield reply
            if isinstance(reply, responses.SubEnded):
                return

    def id_of(self, session: IdOrName) -> int:
        """The id of a session; the daemon is asked where a name was given. Raises ServerSaid where nobody has it."""
        if session.id is not None:
            return session.id
        return self.ask(requests.Resolve(session.name), responses.Resolved).session

    def read(self, session: int, cursor: int = 0) -> tuple[Event, ...]:
        """The events of a session from `cursor` on."""
        return self.ask(requests.Read(session, cursor), responses.Events).events

    def summary(self, session: int) -> responses.SessionSummary:
        """The list entry of one session. Raises ServerSaid, in the daemon's words, where there is none."""
        for entry in self.ask(requests.Sessions(include_archived=True), responses.SessionList).sessions:
            if entry.id == session:
                return entry
        self.read(session, U64_MAX)  # refused with the reason: unknown, or purged
        raise ServerSaid(f"unknown session {session}")

    def _send(self, request: requests.Request) -> None:
        try:
            payload = frame(postcard.encode(requests.Request, request))
        except ValueError as fault:
            raise UsageError(f"that is too much for one request: {fault}") from None
        try:
            self._socket.sendall(payload)
        except OSError as fault:
            raise ConnectionBroken(self._broken(fault)) from None

    def _receive(self) -> responses.Response:
        try:
            while (payload := self._reader.next_frame()) is None:
                self._wait()
                self._reader.feed(self._piece())
            reply: responses.Response = postcard.decode(responses.Response, payload)
        except DecodeError as fault:
            raise ConnectionBroken(f"the daemon at {self.path} sent something that is no reply: {fault}") from None
        if isinstance(reply, responses.Err):
            raise ServerSaid(reply.message)
        return reply

    def _piece(self) -> bytes:
        try:
            piece = self._socket.recv(_PIECE)
        except OSError as fault:
            raise ConnectionBroken(self._broken(fault)) from None
        if not piece:
            raise ConnectionBroken(self._broken(None))
        return piece

    def _wait(self) -> None:
        """Return once something can be read; signal handlers run in here, and may raise.

        Raises BrokenPipeError once nobody reads `outlet` any more: a daemon that has nothing to say for hours would
        otherwise keep a command that nobody hears.
        """
        if self.wake is None:
            return
        watched = select.poll()
        watched.register(self._socket, select.POLLIN)
        watched.register(self.wake, select.POLLIN)
        if self.outlet is not None:
            watched.register(self.outlet, 0)
        ready: dict[int, int] = {}
        since = time.monotonic()
        while self._socket.fileno() not in ready:
            ready = dict(watched.poll(None if self.unheard is None else LOOK * 1000))
            if not ready and self.unheard is not None:
                self.unheard(time.monotonic() - since)
            elif self.wake in ready:
                os.read(self.wake, 64)
            elif self._socket.fileno() not in ready and self.outlet in ready:
                if ready[self.outlet] & (select.POLLERR | select.POLLHUP):
                    raise BrokenPipeError
                watched.unregister(self.outlet)  # a system that cannot tell

    def _broken(self, fault: OSError | None) -> str:
        if isinstance(fault, TimeoutError):
            return f"the daemon at {self.path} does not answer"
        return f"the daemon at {self.path} closed the connection before its reply was complete"


def cancel(path: Path, session: int) -> bool:
    """Stop the generation of `session` over a connection of its own. False where there was none to stop."""
    try:
        with Client(path, timeout=CANCEL_SECONDS) as client:
            client.ask(requests.Cancel(session), responses.Cancelling)
    except (NoDaemon, ConnectionBroken, ServerSaid):
        return False
    return True


def _unexpected(reply: Any) -> ConnectionBroken:
    return ConnectionBroken(f"the daemon answered with {type(reply).__name__}, which does not fit the request")


def _no_daemon(path: Path, fault: OSError) -> str:
    if isinstance(fault, FileNotFoundError | ConnectionRefusedError):
        return f"no daemon at {path}; start one with `superfluid serve`"
    reason = fault.strerror or str(fault) or type(fault).__name__
    if isinstance(fault, PermissionError):
        return f"cannot reach a daemon at {path}: {reason}; only the user who started it can use it"
    return f"cannot reach a daemon at {path}: {reason}; start one with `superfluid serve`"
