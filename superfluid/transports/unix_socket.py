"""The unix socket: frames of postcard, one connection a client (spec: wire-facts, section 1).

A connection runs one request at a time, in order; subscriptions deliver between its replies. While a request runs
nothing is read, so a client that sends ahead is paced by its own socket.
"""

from __future__ import annotations

import errno
import logging
import os
import select
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import trio

from superfluid.daemon.activity import Activity
from superfluid.daemon.bus import Ended, Provisional, Subscription
from superfluid.daemon.config import StartError
from superfluid.daemon.generation import Generation
from superfluid.daemon.use_cases import UseCases
from superfluid.protocol import postcard, requests, responses
from superfluid.protocol.errors import DecodeError, FrameTooLong
from superfluid.protocol.frames import MAX_FRAME, FrameReader, frame
from superfluid.protocol.refusals import Refusal, ReplyTooLong, SessionPurged, UnknownSubscription
from superfluid.protocol.requests import Request
from superfluid.protocol.responses import Response
from superfluid.transports.dispatch import answer

_LOG = logging.getLogger("superfluid.socket")

LONGEST_PATH = 103 if os.uname().sysname == "Darwin" else 107

WAITING = 1024
"""Connections that may wait to be accepted; past it, a client that does not block is turned away by the kernel."""

HANGUP_LOOK = 0.1
"""Seconds between two looks at whether a client that waits for a generation is still there."""

LARGE_REPLY = 512
"""Events in a reply from which on it is encoded in a thread."""

LARGE_REQUEST = 1 << 16
"""Bytes of a request from which on it is decoded in a thread."""


class UnixSocket:
    """The transport at one path, mode 0600."""

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
        accepting = trio.SocketListener(trio.socket.from_stdlib_socket(self._listener))

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
    raise StartError(f"socket {path} is in use by another daemon; name a different one with --socket")


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
        self._cases = cases
        self._activity = activity
        self._reader = FrameReader()
        self._sending = trio.StrictFIFOLock()
        self._subscriptions: dict[int, Subscription] = {}

    async def run(self) -> None:
        try:
            async with trio.open_nursery() as nursery:
                await self._requests(nursery)
                nursery.cancel_scope.cancel()
        except* (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            for subscription in self._subscriptions.values():
                self._cases.reading.unsubscribe(subscription)

    async def _requests(self, nursery: trio.Nursery) -> None:
        while True:
            try:
                for payload in self._reader.frames():
                    request = await _decoded(payload)
                    with self._activity:
                        await self._handle(request, nursery)
            except FrameTooLong:
                return  # nothing after it can be followed
            except DecodeError as fault:
                await self._send(responses.Err(f"protocol: undecodable request: {fault}"))
                return
            data = await self._stream.receive_some(1 << 16)
            if not data:
                return
            self._reader.feed(data)

    async def _handle(self, request: Request, nursery: trio.Nursery) -> None:
        match request:
            case requests.Generate(session, max_tokens):
                await self._generate(session, max_tokens)
            case requests.Subscribe(session, cursor, provisional):
                await self._subscribe(session, cursor, provisional, nursery)
            case requests.Unsubscribe(sub):
                await self._unsubscribe(sub)
            case _:
                await self._send(await answer(self._cases, request))

    # --- generations ----------------------------------------------------------------------------------------------

    async def _generate(self, session: int, max_tokens: int) -> None:
        try:
            async with self._cases.generating.generate(session, max_tokens) as started:
                if isinstance(started, Generation):
                    await self._unless_gone(lambda: self._stream_deltas(started))
                    if started.refusal is not None:
                        raise started.refusal
                summary = started.summary if isinstance(started, Generation) else started
                assert summary is not None
        except Refusal as refusal:
            await self._send(responses.Err(str(refusal)))
            return
        await self._send(responses.Generated(summary.events, summary.tokens, summary.finish, summary.warm))

    async def _stream_deltas(self, generation: Generation) -> None:
        async for event in generation.deltas:
            await self._send(responses.Delta(event))
        await generation.ended.wait()

    async def _unless_gone(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run `work`; where the client hangs up meanwhile, stop it and raise BrokenResourceError."""
        gone = False

        async def look() -> None:
            nonlocal gone
            poll = select.poll()
            # A client that has only shut its writing side down still listens: that is no hang-up.
            poll.register(self._stream.socket.fileno(), 0)
            while not gone:
                await trio.sleep(HANGUP_LOOK)
                gone = any(event & (select.POLLHUP | select.POLLERR) for _, event in poll.poll(0))
            nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(look)
            await work()
            nursery.cancel_scope.cancel()
        if gone:
            raise trio.BrokenResourceError

    # --- subscriptions --------------------------------------------------------------------------------------------

    async def _subscribe(self, session: int, cursor: int, provisional: bool, nursery: trio.Nursery) -> None:
        try:
            subscription = self._cases.reading.subscribe(session, provisional)
        except Refusal as refusal:
            await self._send(responses.Err(str(refusal)))
            return
        self._subscriptions[subscription.id] = subscription
        await self._send(responses.Subscribed(subscription.id))
        nursery.start_soon(self._deliver, subscription, cursor)

    async def _deliver(self, subscription: Subscription, cursor: int) -> None:
        with self._activity:
            await self._deliver_all(subscription, cursor)

    async def _deliver_all(self, subscription: Subscription, cursor: int) -> None:
        reason = "publisher closed"
        try:
            async for message in self._cases.reading.follow(subscription, cursor):
                match message:
                    case Provisional(channel, text):
                        await self._send(responses.SubProvisional(subscription.id, channel, text))
                    case Ended():
                        reason = message.reason
                    case _:
                        await self._send(responses.SubEvent(subscription.id, message))
        except SessionPurged:
            reason = "purged"
        except Refusal as refusal:
            reason = str(refusal)
        self._subscriptions.pop(subscription.id, None)
        self._cases.reading.unsubscribe(subscription)
        await self._send(responses.SubEnded(subscription.id, reason))

    async def _unsubscribe(self, sub: int) -> None:
        subscription = self._subscriptions.get(sub)
        if subscription is None:
            await self._send(responses.Err(str(UnknownSubscription(sub))))
            return
        self._cases.reading.unsubscribe(subscription)
        await self._send(responses.Unsubscribed())

    # --- frames ---------------------------------------------------------------------------------------------------

    async def _send(self, response: Response) -> None:
        if _events_in(response) >= LARGE_REPLY:
            payload = await trio.to_thread.run_sync(postcard.encode, Response, response)
        else:
            payload = postcard.encode(Response, response)
        if len(payload) > MAX_FRAME:
            payload = postcard.encode(Response, responses.Err(str(ReplyTooLong(len(payload)))))
        async with self._sending:
            await self._stream.send_all(frame(payload))


async def _decoded(payload: bytes) -> Request:
    request: Request
    if len(payload) < LARGE_REQUEST:
        request = postcard.decode(Request, payload)
    else:
        request = await trio.to_thread.run_sync(postcard.decode, Request, payload)
    return request


def _events_in(response: Response) -> int:
    match response:
        case responses.Events(events) | responses.Generated(events=events):
            return len(events)
        case responses.Inspection(inspection):
            return len(inspection.events)
        case _:
            return 0
