"""Request bodies, all together: bounded, room for small ones beside big ones, none for those that never end."""

import json
import threading
from contextlib import ExitStack, suppress

import anthropic
import openai
import pytest
import trio
import websockets.exceptions
import websockets.sync.client
from trio.testing import MockClock

from superfluid.transports.holding import MOST_LARGE, MOST_SMALL, SMALL, HeldBodies, NoRoom
from superfluid.transports.http import body
from superfluid.transports.http.errors import ApiError
from tests.http.server import Server, eventually, fake, parsed, read_all
from tests.support.daemon import DEADLINE

CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"
HI = [{"role": "user", "content": "Hi"}]
BIG = 63 << 20


# --- the counting -------------------------------------------------------------------------------------------------


def test_what_is_held_is_given_back():
    bodies = HeldBodies(4 * SMALL, 1000)
    whole = bodies.free
    assert whole == SMALL + 1000
    with bodies.one({"state": {}}) as one, bodies.one({"state": {}}) as other:
        one.resize(SMALL + 600)
        assert bodies.free == SMALL + 400
        with pytest.raises(NoRoom):
            other.announce(SMALL + 401)
        other.announce(SMALL + 400)
        other.resize(SMALL + 400)
        with pytest.raises(NoRoom):
            one.resize(SMALL + 601)
        one.resize(50)
        other.resize(SMALL + 1000)
        with pytest.raises(NoRoom):
            one.resize(SMALL + 1)
    assert bodies.free == whole


def test_long_bodies_leave_the_short_ones_their_room():
    bodies, scopes = HeldBodies(), [{"state": {}} for _ in range(200)]
    with ExitStack() as stack:
        first, *rest = [stack.enter_context(bodies.one(scope)) for scope in scopes]
        first.resize(SMALL + MOST_LARGE)
        for one in rest:
            one.resize(SMALL)
        assert bodies.free == SMALL
        with pytest.raises(NoRoom):
            rest[0].resize(SMALL + 1)
    assert bodies.free == SMALL + MOST_LARGE
    assert MOST_SMALL // SMALL == 256


# --- bodies that do not come --------------------------------------------------------------------------------------


async def nothing():
    pass


def read(pieces):
    """What comes of a body whose pieces come after so many seconds each; and when."""
    bodies, given = HeldBodies(), iter(pieces)

    async def receive():
        wait, piece = next(given)
        await trio.sleep(wait)
        return {"type": "http.request", "body": piece, "more_body": piece != b""}

    async def main():
        scope = {"type": "http", "headers": [], "state": {"superfluid_ask_for_body": nothing}}
        began = trio.current_time()
        with bodies.one(scope):
            try:
                return len(await body.read(scope, receive)), trio.current_time() - began
            except ApiError as fault:
                return fault.status, trio.current_time() - began

    told = trio.run(main, clock=MockClock(autojump_threshold=0))
    assert bodies.free == SMALL + MOST_LARGE
    return told


def test_bodies_that_do_not_come():
    assert read([(0, b"x"), (61, b"y"), (0, b"")]) == (408, 60)
    assert read([(59, b"x")] * 100) == (408, 60 + 1 / (32 << 10))
    assert read([(0, b"x" * (1 << 20)), *[(59, b"x")] * 100])[0] == 408
    assert read([(59, b"x"), (0.9, b"y"), (0, b"")]) == (2, 59.9)


def test_slow_bodies_that_come_are_taken():
    """A minute's grace, and from then on 32 KiB a second."""
    second = (1, b"x" * (33 << 10))
    assert read([*[second] * 1900, (0, b"")]) == (1900 * (33 << 10), 1900)


# --- a daemon that holds as much as it may ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("held"), web={"port": 0}, worker_argv=fake())
    yield server
    server.close()


def head(path, length):
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json", "Connection: close"]
    return "\r\n".join([*lines, f"Content-Length: {length}", "", ""]).encode()


@pytest.mark.parametrize("part", [b"[],", b"{},", b'"x",'])
def test_a_body_of_very_many_parts_is_refused_unparsed(server, part):
    """Millions of small values would take minutes and gigabytes, and nothing else would go on meanwhile."""
    data = b'{"messages": [' + part * (9 << 20) + b"1]}"
    for path in (CHAT, MESSAGES):
        reply = server.http.post(path, content=data, headers={"content-type": "application/json"})
        assert (reply.status_code, "brackets" in reply.json()["error"]["message"]) == (413, True)


def test_long_bodies_at_once_are_not_all_refused(server):
    """Who is refused makes room for the others at once, though it may still be sending."""
    body, seen = json.dumps({"messages": [{"role": "user", "content": "a " * (20 << 20)}]}).encode(), []

    def ask():
        headers = {"content-type": "application/json"}
        seen.append(server.http.post(CHAT, content=body, headers=headers).status_code)

    clients = [threading.Thread(target=ask) for _ in range(10)]
    for client in clients:
        client.start()
    for client in clients:
        client.join(DEADLINE)
    assert len(seen) == 10
    assert set(seen) <= {400, 503}  # too long for the window, or no room
    assert seen.count(400) >= 6


@pytest.fixture(scope="module")
def full(server):
    """All but the last byte of four long bodies is there; then no more than a small one has room."""
    with ExitStack() as stack:
        streams = [stack.enter_context(server.connection()) for _ in range(4)]
        piece = b" " * (1 << 20)

        def fill(stream):
            stream.sendall(head(CHAT, BIG))
            for _ in range(62):
                stream.sendall(piece)
            stream.sendall(piece[1:])

        fillers = [threading.Thread(target=fill, args=(stream,)) for stream in streams]
        for filler in fillers:
            filler.start()
        for filler in fillers:
            filler.join(DEADLINE)
        eventually(lambda: _announced(server, 8 << 20) == 503)
        yield streams
        for stream in streams:
            stream.sendall(b" ")
            status, reply = parsed(read_all(stream))
            assert (status, reply["error"]["code"]) == (400, "invalid_json")
    eventually(lambda: _announced(server, BIG) == 0)


def _announced(server, length):
    """The status of a request that says how long it will be, 0 where its body is waited for."""
    with server.connection() as stream:
        stream.sendall(head(CHAT, length).replace(b"Connection: close", b"Expect: 100-continue"))
        reply = stream.recv(1 << 16).split()
        return 0 if reply[1] == b"100" else int(reply[1])


def test_too_many_bodies_are_refused(server, full):
    for path in (CHAT, MESSAGES, "/v1/sessions/nobody/warm"):
        reply = server.http.post(path, json={"messages": HI, "max_tokens": 1, "padding": " " * (9 << 20)})
        if "/sessions/" in path:
            assert reply.status_code == 404  # told before the body is looked at
            continue
        assert (reply.status_code, reply.headers["retry-after"]) == (503, "1")
        content = reply.json()
        assert "holding too many request bodies" in content["error"]["message"]
        assert content["error"]["type"] == "api_error"
        assert content.get("type") == ("error" if path == MESSAGES else None)


def test_one_that_did_not_say_how_long_it_is(server, full):
    piece = b"%x\r\n%s\r\n" % (1 << 20, b" " * (1 << 20))
    with server.connection() as stream:
        stream.sendall(head(CHAT, 0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked"))
        writer = threading.Thread(target=stream.sendall, args=(piece * 8 + b"0\r\n\r\n",))
        writer.start()
        status, reply = parsed(read_all(stream))
        writer.join(DEADLINE)
    assert (status, reply["error"]["code"]) == (503, "too_many_bodies")


def test_small_requests_get_through(server, full):
    for content in ("Hi", "word " * 1000):
        assert server.chat(content).status_code == 200
    assert server.http.post("/v1/sessions", json={"id": "feed"}).status_code == 201
    assert server.http.post("/v1/sessions/feed/push", json={"data": ["x" * 1000] * 100}).status_code == 200


def test_messages_of_websockets_count_too(server, full):
    server.http.post("/v1/sessions", json={"id": "socket"})
    url = server.url.replace("http", "ws", 1) + "/v1/sessions/socket/ws"
    with websockets.sync.client.connect(url) as socket:
        assert json.loads(socket.recv(DEADLINE))["type"] == "connected"
        socket.send(json.dumps({"type": "push", "data": "small"}))
        assert json.loads(socket.recv(DEADLINE))["type"] == "push_ack"
        with suppress(websockets.exceptions.ConnectionClosed):
            socket.send(json.dumps({"type": "push", "data": "x" * (9 << 20)}))
        with pytest.raises(websockets.exceptions.ConnectionClosedError) as closed:
            list(socket)
    assert closed.value.rcvd.code == 1009


def test_the_other_listener_counts_them_too(server, full):
    url = server.daemon.web_url()
    token = (server.daemon.sessions / "web-token").read_text()
    headers = {"authorization": f"Bearer {token}", "x-superfluid-csrf": token}
    reply = server.http.post(url + "/web/rpc", json=["x" * (9 << 20)], headers=headers)
    assert (reply.status_code, reply.headers["retry-after"]) == (503, "1")
    assert "holding too many request bodies" in reply.json()["Err"]["message"]
    assert server.http.post(url + "/web/rpc", json="List", headers=headers).status_code == 200


def test_clients_try_again(server, full):
    """They wait as long as they are told to, and say which error it was in the end."""
    large = [{"role": "user", "content": "x" * (9 << 20)}]
    with server.openai.with_options(max_retries=1) as client, pytest.raises(openai.InternalServerError) as refused:
        client.chat.completions.create(model="m", messages=large)
    assert (refused.value.status_code, refused.value.code) == (503, "too_many_bodies")
    assert refused.value.response.request.headers["x-stainless-retry-count"] == "1"
    with (
        anthropic.Anthropic(base_url=server.url, api_key="x", max_retries=1, timeout=DEADLINE) as claude,
        pytest.raises(anthropic.APIStatusError) as overloaded,
    ):
        claude.messages.create(model="m", messages=large, max_tokens=1)
    assert overloaded.value.status_code == 503
    assert json.loads(overloaded.value.response.text)["request_id"] == overloaded.value.request_id
