"""Connections whose clients or applications do what they should not: each ends, and its task with it."""

from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from superfluid.transports.holding import STALLED, HeldBodies
from superfluid.transports.http.errors import spelled
from superfluid.transports.listening import IDLE_SECONDS, Listener, settings

UPGRADE = b"GET /x HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
HANDSHAKE = UPGRADE + b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
POST = b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
PIECE = b"1\r\nx\r\n"
NEXT = b"GET /next HTTP/1.1\r\nHost: a\r\n\r\n"


class Place:
    """A listener with one application, and the clients it has."""

    def __init__(self, application, bodies):
        limits = settings()
        limits.max_app_queue_size = 1
        limits.websocket_max_message_size = 1 << 20
        self.bodies = bodies
        self.listener = Listener("127.0.0.1", 0, limits, spelled, bodies)
        self._application = application
        self._streams = []

    @asynccontextmanager
    async def open(self):
        self.listener.bind()
        async with trio.open_nursery() as nursery, trio.open_nursery() as clients:
            self.clients = clients
            nursery.start_soon(self.listener.serve, self._application, clients)
            yield self
            for stream in self._streams:
                await stream.aclose()
            clients.cancel_scope.cancel()
            nursery.cancel_scope.cancel()
        self.listener.close()

    async def connect(self):
        stream = await trio.open_tcp_stream(*self.listener.address)
        self._streams.append(stream)
        return stream

    async def empty(self):
        """Wait until no client is left."""
        with trio.fail_after(200):
            while self.clients.child_tasks:  # noqa: ASYNC110 - a clock that jumps
                await trio.sleep(1)


def run(application, client):
    """What `client` comes to, at a clock that jumps wherever all wait; the connections are all over then."""

    async def main():
        async with Place(application, HeldBodies()).open() as place:
            told = await client(place)
            await place.empty()
            return told

    return trio.run(main, clock=MockClock(autojump_threshold=0.05))


async def refuse(scope, receive, send):
    """Read nothing, and give the client time to send what fills the queue."""
    await trio.sleep(1)
    headers = [(b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 401, "headers": headers})
    await send({"type": "http.response.body", "body": b"no"})


def test_a_refused_body_that_nobody_reads_ends_with_its_connection():
    async def client(place):
        stream = await place.connect()
        await stream.send_all(POST + PIECE * 4)
        reply = await stream.receive_some()
        assert reply.startswith(b"HTTP/1.1 401 ")

    run(refuse, client)


async def ignore(scope, receive, send):
    await receive()
    await send({"type": "websocket.accept"})
    await trio.sleep(1)


def frame(data, *, missing=0):
    """A text message, masked with zeros; `missing` bytes of it are not there."""
    return b"\x81" + bytes([0x80 + len(data) + missing]) + bytes(4) + data


def test_a_socket_that_nobody_reads_ends_with_its_application():
    async def client(place):
        stream = await place.connect()
        await stream.send_all(HANDSHAKE)
        assert (await stream.receive_some()).startswith(b"HTTP/1.1 101 ")
        await stream.send_all(frame(b"hello") * 4)

    run(ignore, client)


def test_messages_before_the_end_are_taken():
    seen = []

    async def take(scope, receive, send):
        await receive()
        await send({"type": "websocket.accept"})
        await trio.sleep(1)
        while (message := await receive())["type"] == "websocket.receive":
            seen.append(message["text"])

    async def client(place):
        stream = await place.connect()
        await stream.send_all(HANDSHAKE)
        await stream.receive_some()
        await stream.send_all(frame(b"hello"))
        await stream.aclose()

    run(take, client)
    assert seen == ["hello"]


async def answer_late(scope, receive, send):
    """Answer after a long while, unless the client leaves."""
    while True:
        with trio.move_on_after(1000) as waiting:
            if (await receive())["type"] == "http.disconnect":
                return
        if waiting.cancelled_caught:
            await refuse(scope, receive, send)
            return


@pytest.mark.parametrize(
    "head", [b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n", b""]
)
@pytest.mark.parametrize("rest", [b"", b"\r\n", NEXT])
def test_leaving_is_noticed(head, rest):
    async def client(place):
        stream = await place.connect()
        await stream.send_all(b"GET /x HTTP/1.1\r\nHost: a\r\n" + head + b"\r\n" + rest)
        await trio.sleep(1)
        await stream.send_all(rest)
        await trio.sleep(1)
        await stream.aclose()
        await place.empty()

    run(answer_late, client)


def test_nobody_is_served_who_left_before_the_turn_came():
    served = []

    async def answer(scope, receive, send):
        served.append(scope["path"])
        await refuse(scope, receive, send)

    async def client(place):
        began = trio.current_time()
        stream = await place.connect()
        await stream.send_all(NEXT * 3)
        await stream.aclose()
        await place.empty()
        return trio.current_time() - began

    assert run(answer, client) < IDLE_SECONDS / 2
    assert served == ["/next"]


def test_a_declined_offer_changes_nothing_for_the_next_request():
    async def client(place):
        stream = await place.connect()
        for _ in range(2):
            await stream.send_all(b"GET /x HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n")
            reply = b""
            while not reply.endswith(b"no"):
                reply += await stream.receive_some()
            assert reply.startswith(b"HTTP/1.1 401 ")
        await stream.aclose()

    run(refuse, client)


def test_a_message_before_the_handshake_is_answered():
    async def accept(scope, receive, send):
        await receive()
        await trio.sleep(1)
        await send({"type": "websocket.accept"})
        while (await receive())["type"] != "websocket.disconnect":
            pass

    async def client(place):
        stream = await place.connect()
        await stream.send_all(HANDSHAKE + frame(b"hello"))
        reply = b"".join([piece async for piece in stream])
        assert reply.startswith(b"HTTP/1.1 400 ")

    run(accept, client)


async def listen(scope, receive, send):
    await receive()
    await send({"type": "websocket.accept"})
    while (await receive())["type"] == "websocket.receive":
        pass


def test_a_message_that_does_not_come_is_given_up():
    async def client(place):
        stream = await place.connect()
        await stream.send_all(HANDSHAKE)
        await stream.receive_some()
        await stream.send_all(frame(b"hello"))
        await trio.sleep(1000)  # whole messages may be far between
        began = trio.current_time()
        await stream.send_all(frame(b"hello", missing=3))
        with trio.fail_after(200):
            assert await stream.receive_some() == b""
        assert trio.current_time() - began >= STALLED

    run(listen, client)
