"""The unix socket: frames of postcard, one connection a client (spec: wire-facts, section 1).

What a connection says is `conversation`'s. While a request runs nothing is read, so a client that sends ahead is
paced by its own socket.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
from pathlib import Path

import trio

from superfluid.daemon.activity import Activity
from superfluid.daemon.config import StartError
from superfluid.daemon.use_cases import UseCases
from superfluid.protocol import postcard, responses
from superfluid.protocol.errors import DecodeError, FrameTooLong
from superfluid.protocol.frames import MAX_FRAME, FrameReader, frame
from superfluid.protocol.refusals import ReplyTooLong
from superfluid.protocol.requests import Request
from superfluid.protocol.responses import Response
from superfluid.transports.accepting import PatientListener
from superfluid.transports.conversation import Conversation, is_large
from superfluid.transports.hangup import until_hung_up

_LOG = logging.getLogger("superfluid.socket")

LONGEST_PATH = 103 if os.uname().sysname == "Darwin" else 107

WAITING = 1024
"""Connections that may wait to be accepted; past it, a client that does not block is turned away by the kernel."""

LARGE_REQUEST = 1 << 16
"""Bytes of a request from which on it is decoded in a thread."""


class UnixSocket:
    """The transport at one path, mode 0600."""

    kind = "socket"
    url = None
    open = False

    def __init__(self, path: Path) -> None:
        self._path = path
        self._listener: socket.socket | None = None

    def bind(self) -> None:
        """Raises StartError where the path is too long, taken or not to be had."""
        length = len(os.fsencode(self._path))
        if length > LONGEST_PATH:
            raise StartError(
                f"socket path {self._path} has {length} bytes, over the {LONGEST_PATH} that the system allows; "
                "name a shorter one with --socket",
                2,
            )
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _remove_stale(self._path)
            before = os.umask(0o177)
            try:
                listener.bind(os.fspath(self._path))
            finally:
                os.umask(before)
            listener.listen(WAITING)
        except OSError as fault:
            listener.close()
            raise StartError(f"socket {self._path}: {fault.strerror or fault}") from fault
        except StartError:
            listener.close()
            raise
        listener.setblocking(False)
        self._listener = listener

    async def serve(self, cases: UseCases, activity: Activity, clients: trio.Nursery) -> None:
        """Accept connections until cancelled; they live in `clients`."""
        assert self._listener is not None, "bind comes first"
        accepting = PatientListener(self._listener)

        async def handle(stream: trio.SocketStream) -> None:
            await _serve_client(stream, cases, activity)

        await trio.serve_listeners(handle, [accepting], handler_nursery=clients)

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._path.unlink(missing_ok=True)


def _remove_stale(path: Path) -> None:
    if not path.exists():
        return
    if not path.is_socket():
        raise StartError(f"socket {path}: something that is no socket is there")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        try:
            probe.connect(os.fspath(path))
        except OSError as fault:
            if fault.errno in (errno.ECONNREFUSED, errno.ENOENT):
                path.unlink(missing_ok=True)
                return
            raise
    raise StartError(f"socket {path} is in use by another daemon; name another one with --socket")


async def _serve_client(stream: trio.SocketStream, cases: UseCases, activity: Activity) -> None:
    try:
        async with stream:
            await Connection(stream, cases, activity).run()
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass  # the client is gone
    except Exception:
        # A handler that raises would end the daemon; this client loses its connection instead.
        _LOG.exception("a connection failed")


class Connection:
    """One client. Frames never interleave; `run` ends when the client leaves."""

    def __init__(self, stream: trio.SocketStream, cases: UseCases, activity: Activity) -> None:
        self._stream = stream
        self._activity = activity
        self._reader = FrameReader()
        self._sending = trio.StrictFIFOLock()
        self._conversation = Conversation(cases, activity, self._send, self._gone)

    async def run(self) -> None:
        try:
            async with trio.open_nursery() as nursery:
                await self._requests(nursery)
                nursery.cancel_scope.cancel()
        except* (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            self._conversation.close()

    async def _requests(self, nursery: trio.Nursery) -> None:
        while True:
            try:
                for payload in self._reader.frames():
                    request = await _decoded(payload)
                    with self._activity:
                        await self._conversation.handle(request, nursery)
            except FrameTooLong:
                return  # nothing after it can be followed
            except DecodeError as fault:
                await self._send(responses.Err(f"protocol: undecodable request: {fault}"))
                return
            data = await self._stream.receive_some(1 << 16)
            if not data:
                return
            self._reader.feed(data)

    async def _gone(self) -> None:
        """Return once the client has hung up."""
        await until_hung_up(self._stream.socket)

    async def _send(self, response: Response) -> None:
        async with self._sending:  # also while it is encoded: what is told later is read later
            if is_large(response):
                payload = await trio.to_thread.run_sync(postcard.encode, Response, response)
            else:
                payload = postcard.encode(Response, response)
            if len(payload) > MAX_FRAME:
                payload = postcard.encode(Response, responses.Err(str(ReplyTooLong(len(payload)))))
            await self._stream.send_all(frame(payload))


async def _decoded(payload: bytes) -> Request:
    request: Request
    if len(payload) < LARGE_REQUEST:
        request = postcard.decode(Request, payload)
    else:
        request = await trio.to_thread.run_sync(postcard.decode, Request, payload)
    return request
