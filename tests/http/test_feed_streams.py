"""Event streams and WebSockets of sessions: what they say, how they end, and clients that do as they please."""

import json
import socket

import pytest
import trio
import trio.lowlevel
import trio.testing
import websockets.exceptions
import websockets.sync.client

from superfluid.daemon.feeds.events import QUEUE
from superfluid.protocol.feed_responses import DataUpdated
from superfluid.transports.http.events import HEARTBEAT, SILENCE, Events, frames
from superfluid.transports.http.feed_socket import MOST_WAITING, FeedSocket
from superfluid.transports.http.naming import found
from tests.feeds.house import run
from tests.support.daemon import DEADLINE

PATH = "/v1/sessions"


@pytest.fixture
def feed(quick, request):
    """The path of a session of its own."""
    name = request.node.name.replace("[", "-").replace("]", "")[:100].replace(" ", "_")
    assert quick.http.post(PATH, json={"id": name}).status_code == 201
    yield f"{PATH}/{name}"
    quick.http.delete(f"{PATH}/{name}")


def upgrade(server, path, *headers):
    """A refused upgrade: its status, headers and body. The socket stays open on our side until all was read."""
    lines = [
        f"GET {path} HTTP/1.1",
        "Host: localhost",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        *headers,
    ]
    with server.connection() as stream:
        stream.sendall("\r\n".join(lines).encode() + b"\r\n\r\n")
        head, _, body = read_head(stream)
        fields = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:])
        while len(body) < int(fields.get("content-length", 0)):
            body += stream.recv(1 << 16)
    return int(head.split()[1]), fields, json.loads(body)


def read_head(stream):
    data = b""
    while b"\r\n\r\n" not in data:
        piece = stream.recv(1 << 16)
        assert piece, data
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    return head.decode(), b"", body


def connect(server, path, **options):
    url = server.url.replace("http:", "ws:") + path + "/ws"
    return websockets.sync.client.connect(url, open_timeout=DEADLINE, close_timeout=DEADLINE, **options)


def receive(client):
    message = json.loads(client.recv(timeout=DEADLINE))
    assert set(message) == {"type", "data"}
    return message["type"], message["data"]


def drain(client):
    """Read until it ends, which raises."""
    while True:
        client.recv(timeout=DEADLINE)


# --- events -------------------------------------------------------------------------------------------------------


def test_the_frames_of_events(quick, feed):
    with quick.http.stream("GET", feed + "/events") as reply:
        assert reply.headers["content-type"].startswith("text/event-stream")
        lines = reply.iter_lines()
        assert next(lines) == "event: connected"
        connected = json.loads(next(lines).removeprefix("data: "))
        assert connected == {"session_id": feed.rpartition("/")[2], "data_version": 0, "flash_queries": 0}
        assert next(lines) == ""
        quick.http.post(feed + "/push", json={"data": "x"})
        assert next(lines) == "event: data_updated"
        updated = json.loads(next(lines).removeprefix("data: "))
        assert updated == {
            "data_version": 1,
            "tokens": quick.http.get(feed).json()["tokens"],
            "pending": 0,
        }
        assert next(lines) == ""
        assert quick.http.delete(feed).status_code == 200
        assert [*lines] == []


def test_silence_is_filled():
    """A heartbeat after 15 seconds in which nothing happened, counted from the last event."""

    async def main():
        sending, receiving = trio.open_memory_channel(0)
        told = []

        async def read():
            async for frame in frames(receiving):
                told.append((trio.current_time() - began, frame))

        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            await trio.sleep(10)
            await sending.send(DataUpdated(1, 2, 3))
            await trio.sleep(2 * SILENCE + 1)
            sending.close()
        return told

    told = trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert [(at, frame) for at, frame in told if frame == HEARTBEAT] == [(25, HEARTBEAT), (40, HEARTBEAT)]
    assert [at for at, frame in told if frame != HEARTBEAT] == [10]


def test_who_does_not_read_events_is_let_go(tmp_path):
    """What it lags behind is bounded; past that its stream ends, after what it was told."""

    async def story(house):
        told = await past_a_slow_reader(house, lambda receive, send: Events(house.cases)(EVENTS_SCOPE, receive, send))
        assert told[-1] == {"type": "http.response.body", "body": b"", "more_body": False}
        said = b"".join(message.get("body", b"") for message in told)
        assert QUEUE <= said.count(b"event: data_updated") <= QUEUE + 3

    run(tmp_path, story)


def test_who_does_not_read_a_socket_is_let_go(tmp_path):
    async def story(house):
        def client(receive, send):
            target = found(house.cases, "feed")
            return FeedSocket(receive, send, house.cases, target).run()

        told = await past_a_slow_reader(house, client)
        assert told[-1] == {"type": "websocket.close"}
        said = [json.loads(message["text"])["type"] for message in told[:-1]]
        assert said[0] == "connected"
        assert QUEUE + MOST_WAITING <= said.count("data_updated") <= QUEUE + MOST_WAITING + 3

    run(tmp_path, story)


def test_a_session_that_goes_while_its_socket_comes(tmp_path):
    async def story(house):
        session = await house.cases.feeds.open("feed", None, False)
        target, told = found(house.cases, "feed"), []
        await house.cases.feeds.delete(session)

        async def receive():
            return {"type": "websocket.disconnect"}

        async def send(message):
            told.append(message)

        await FeedSocket(receive, send, house.cases, target).run()
        assert told == [{"type": "websocket.close"}]

    run(tmp_path, story)


EVENTS_SCOPE = {"type": "http", "method": "GET", "path_params": {"session": "feed"}}


async def past_a_slow_reader(house, client):
    """What a client is told that takes one message, and the next ones only after 200 batches."""
    session = await house.cases.feeds.open("feed", None, False)
    told, stuck, reads, gone = [], trio.Event(), trio.Event(), trio.Event()

    async def send(message):
        told.append(message)
        if message["type"] in ("http.response.body", "websocket.send"):
            stuck.set()
            await reads.wait()

    async def receive():
        await gone.wait()
        return {"type": "websocket.disconnect"}

    async with trio.open_nursery() as nursery:
        nursery.start_soon(client, receive, send)
        await stuck.wait()
        for _ in range(200):
            house.cases.feeds.push(session, ("x",))
            await house.settled(session)
        reads.set()
        while told[-1].get("more_body", True) and told[-1]["type"] != "websocket.close":
            await trio.lowlevel.checkpoint()
        gone.set()
    return told


def test_both_end_with_the_daemon(servers):
    server = servers()
    assert server.http.post(PATH, json={"id": "feed"}).status_code == 201
    with server.http.stream("GET", PATH + "/feed/events") as reply, connect(server, PATH + "/feed") as client:
        lines = reply.iter_lines()
        assert next(lines) == "event: connected"
        assert receive(client)[0] == "connected"
        server.daemon.process.terminate()
        assert [line for line in lines if line.startswith("event")] == []
        with pytest.raises(websockets.exceptions.ConnectionClosed):
            client.recv(timeout=DEADLINE)
    assert server.daemon.process.wait(DEADLINE) == 0


# --- WebSockets ---------------------------------------------------------------------------------------------------


def test_a_socket_ends_with_its_session(quick, feed):
    with connect(quick, feed) as client:
        assert receive(client)[0] == "connected"
        assert quick.http.delete(feed).status_code == 200
        with pytest.raises(websockets.exceptions.ConnectionClosedOK):
            client.recv(timeout=DEADLINE)


def test_a_socket_that_is_to_close_closes(quick, feed):
    with connect(quick, feed) as client:
        assert receive(client)[0] == "connected"
        client.send('{"type": "push", "data": "x"}')
        client.send('{"type": "close"}')
        assert receive(client)[0] == "push_ack"
        with pytest.raises(websockets.exceptions.ConnectionClosedOK):
            drain(client)


def test_acknowledgements_come_before_what_they_cause(quick, feed):
    with connect(quick, feed) as client:
        assert receive(client)[0] == "connected"
        for number in range(50):
            client.send(json.dumps({"type": "push", "data": [f"line {number}"]}))
        acknowledged, updates = [], []
        while not updates or updates[-1]["pending"] or len(acknowledged) < 50:
            kind, data = receive(client)
            if kind == "push_ack":
                assert set(data) == {
                    "pushed", "dropped", "pending", "total_pushed", "total_dropped", "data_version",
                }  # fmt: skip
                # No event of this push was told yet: its version is the last one told, or one not told so far.
                assert data["data_version"] >= (updates[-1]["data_version"] if updates else 0)
                acknowledged.append(data["total_pushed"])
            else:
                updates.append(data)
        assert acknowledged == [*range(1, 51)]
        versions = [data["data_version"] for data in updates]
        assert versions == [*range(1, len(versions) + 1)]


def test_a_push_whose_answer_was_lost_is_taken_in_once(quick, feed):
    """Sent again over another connection, with more behind it, while somebody else pushes."""

    def push(client, data, first):
        client.send(json.dumps({"type": "push", "data": data, "superfluid": {"sender": 5, "first": first}}))
        while (message := receive(client))[0] != "push_ack":
            pass
        return message[1]["pushed"], message[1]["total_pushed"]

    with connect(quick, feed) as client:
        assert push(client, ["a", "b"], 0) == (2, 2)
    assert quick.http.post(feed + "/push", json={"data": "theirs"}).json()["total_pushed"] == 3
    with connect(quick, feed) as client:
        assert push(client, ["a", "b", "c"], 0) == (2, 2)
        assert push(client, ["c"], 2) == (1, 4)
        assert push(client, ["c"], 3) == (1, 5), "what looks alike is another entry"
    body = {"data": ["c"], "superfluid": {"sender": 6, "first": 3}}
    assert quick.http.post(feed + "/push", json=body).json()["total_pushed"] == 6, "another sender"
    assert quick.http.post(feed + "/push", json=body).json()["total_pushed"] == 6
    body = {"data": ["x"] * 5000, "superfluid": {"sender": 6, "first": 4}}
    accepted = quick.http.post(feed + "/push", json=body).json()
    assert accepted["pushed"] == 4096 - (accepted["pending"] - accepted["pushed"]) < 5000
    assert accepted["dropped"] == 0, "what does not fit is not taken in, since it can be sent again"


BAD = [
    ("hello", "not JSON"),
    ("", "not JSON"),
    ("[]", "not a JSON object"),
    ("{}", "type: "),
    ('{"type": 5}', "type: "),
    ('{"type": "shout"}', "type: expected one of push, ping, close"),
    ('{"type": "push"}', "data: missing"),
    ('{"type": "push", "data": 5}', "data: "),
    ('{"type": "push", "data": []}', "data: "),
    ('{"type": "push", "data": ["x", {}]}', "data[1]: "),
    ('{"type": "push", "data": "x", "superfluid": {"sender": 1}}', "superfluid.first: missing"),
    ('{"type": NaN}', "not JSON"),
    ("[" * 100_000, "nested too deep"),
    (b'{"type": "ping"}', "a text frame"),
    ('{"type": "\\ud800"}', "type: "),
]


def test_messages_that_make_no_sense(quick, feed):
    with connect(quick, feed) as client:
        assert receive(client)[0] == "connected"
        for message, expected in BAD:
            client.send(message)
            kind, data = receive(client)
            assert (kind, data["code"]) == ("error", 400)
            assert expected in data["message"]
        client.send('{"type": "ping", "data": {"ignored": 1}}')
        assert receive(client) == ("pong", {})
    assert quick.http.get(feed).json()["data_version"] == 0


def test_messages_up_to_the_limit(quick, feed):
    with connect(quick, feed, compression=None) as client:
        assert receive(client)[0] == "connected"
        message = json.dumps({"type": "push", "data": "x" * 9_000_000})
        client.send(message)
        kind, data = receive(client)
        assert (kind, data["pushed"]) == ("push_ack", 1)  # too long for the queue, which counts it as dropped
        client.send("x" * (16 << 20) + "x")
        with pytest.raises(websockets.exceptions.ConnectionClosed):
            drain(client)
    assert quick.http.get(feed).status_code == 200


@pytest.mark.parametrize("fragments", [False, True])
def test_a_message_that_never_ends_is_broken_off(quick, feed, fragments):
    """Nothing of it is kept past the limit."""
    piece = b"x" * (1 << 20)
    first = b"\x01\x80" if fragments else b"\x01\xff" + (1 << 40).to_bytes(8, "big")
    if fragments:
        piece = b"\x00\xff" + len(piece).to_bytes(8, "big") + bytes(4) + piece
    with socket.create_connection(quick.address) as stream:
        lines = [
            f"GET {feed}/ws HTTP/1.1", "Host: localhost", "Connection: Upgrade", "Upgrade: websocket",
            "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        ]  # fmt: skip
        stream.sendall("\r\n".join(lines).encode() + b"\r\n\r\n")
        assert read_head(stream)[0].startswith("HTTP/1.1 101")
        stream.sendall(first + bytes(4))
        with pytest.raises(OSError, match=r"pipe|reset"):
            stream.sendall(piece * 256)


def test_who_pushes_and_does_not_read_is_paced(quick, feed):
    """Its acknowledgements fill a bounded queue; then its messages stay in its own socket."""
    with socket.socket() as stream:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        stream.connect(quick.address)
        lines = [
            f"GET {feed}/ws HTTP/1.1", "Host: localhost", "Connection: Upgrade", "Upgrade: websocket",
            "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        ]  # fmt: skip
        stream.sendall("\r\n".join(lines).encode() + b"\r\n\r\n")
        head, *_ = read_head(stream)
        assert head.startswith("HTTP/1.1 101")
        ping = b"\x81\x90\x00\x00\x00\x00" + b'{"type": "ping"}'
        stream.settimeout(1.0)
        with pytest.raises(TimeoutError):
            stream.sendall(ping * (1 << 20))
        assert quick.http.get(feed).status_code == 200
    assert quick.chat().status_code == 200


@pytest.mark.parametrize(
    ("path", "headers", "status", "message"),
    [
        (PATH + "/nothing/ws", (), 404, "no such session 'nothing'"),
        (PATH + "/no.name/ws", (), 400, "id: "),
        (PATH + "/a%2Fb/ws", (), 400, "id: "),
        (PATH + "//ws", (), 400, "id: "),
        (PATH + "/%0Aa/ws", (), 400, "id: "),
        ("/web/ws", (), 404, "no WebSocket"),
        ("/v1/chat/completions", (), 404, "no WebSocket"),
        (PATH + "/nothing/ws", ("Origin: https://evil.example",), 403, "origin: "),
        (PATH + "/nothing/ws", ("Origin: null",), 403, "origin: "),
    ],
)
def test_upgrades_that_are_refused(quick, path, headers, status, message):
    found, fields, reply = upgrade(quick, path, *headers)
    assert found == status
    assert set(reply["error"]) == {"message", "type", "param", "code"}
    assert message in reply["error"]["message"]
    assert int(fields["content-length"]) > 0
    assert not [name for name in fields if name.startswith("access-control")]


def test_a_page_of_this_machine_may_connect(quick, feed):
    with connect(quick, feed, origin="http://localhost:5173") as client:
        assert receive(client)[0] == "connected"
