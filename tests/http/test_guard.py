"""Who may ask: host, origin, key, kind and size of a body; and that no request ends the server."""

import json
import socket
import threading

import openai
import pytest

from tests.http.server import Server, fake, parsed, read_all, request

CHAT = "/v1/chat/completions"
BODY = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}
KEY = "sk-test"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    http = {"api_key": KEY, "hosts": ["llm.example"], "origins": ["https://app.example"]}
    server = Server(tmp_path_factory.mktemp("guarded"), http, worker_argv=fake())
    yield server
    server.close()


def get(server, *headers):
    lines = ["GET /health HTTP/1.1", "Connection: close", *headers]
    return parsed(server.raw("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"))


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LocalHost:8453", 200),
        ("127.0.0.1", 200),
        ("127.0.0.1:8453", 200),
        ("[::1]:8453", 200),
        ("192.168.1.7:80", 200),
        ("[2001:db8::1]", 200),
        ("llm.example", 200),
        ("LLM.example:99", 200),
        ("llm.example.", 200),
        ("evil.example", 403),
        ("llm.example.evil", 403),
        ("evil.llm.example", 403),
        ("localhost.evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("localhost:evil", 403),
        ("user@localhost", 403),
        ("localhost/x", 403),
        ("localhost@evil.example", 403),
        ("", 403),
        ("[::1", 403),
    ],
)
def test_hosts(guarded, host, status):
    found, reply = get(guarded, f"Host: {host}")
    assert found == status
    if status == 403:
        assert (reply["error"]["type"], reply["error"]["param"]) == ("permission_error", "host")


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://localhost", 200),
        ("http://localhost:5173", 200),
        ("https://127.0.0.1:1", 200),
        ("http://[::1]:3000", 200),
        ("https://app.example", 200),
        ("HTTPS://App.example", 200),
        ("http://app.example", 403),
        ("https://app.example:444", 403),
        ("https://app.example.evil", 403),
        ("https://evil.example", 403),
        ("http://192.168.1.7", 403),
        ("http://llm.example", 403),
        ("http://localhost.evil.example", 403),
        ("file://localhost", 403),
        ("null", 403),
        ("", 403),
    ],
)
def test_origins(guarded, origin, status):
    found, reply = get(guarded, "Host: localhost", f"Origin: {origin}")
    assert found == status
    if status == 403:
        assert reply["error"]["param"] == "origin"


def test_every_origin_counts(guarded):
    assert get(guarded, "Host: localhost", "Origin: http://localhost", "Origin: http://evil.example")[0] == 403


def test_no_reply_lets_other_origins_read(guarded):
    reply = guarded.http.get("/health", headers={"origin": "https://app.example"})
    assert not [name for name in reply.headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([f"Authorization: Bearer {KEY}"], 200),
        ([f"authorization: bearer {KEY}"], 200),
        ([f"x-api-key: {KEY}"], 200),
        ([f"x-api-key: {KEY}", f"Authorization: Bearer {KEY}"], 200),
        ([], 401),
        (["Authorization: Bearer"], 401),
        (["Authorization: Bearer sk-tes"], 401),
        ([f"Authorization: Bearer {KEY}x"], 401),
        ([f"Authorization: Basic {KEY}"], 401),
        ([f"Authorization: {KEY}"], 401),
        (["x-api-key: \xff"], 401),
        ([f"x-api-key: {KEY}", "Authorization: Bearer other"], 401),
        ([f"x-api-key: {KEY}", "x-api-key: other"], 401),
    ],
)
def test_keys(guarded, headers, status):
    found, reply = guarded.post(CHAT, json.dumps(BODY).encode(), *headers)
    assert found == status
    if status == 401:
        assert (reply["error"]["type"], reply["error"]["code"]) == ("authentication_error", "invalid_api_key")


def test_what_needs_a_key(guarded):
    assert guarded.http.get("/health").status_code == 200
    for path in ("/metrics", "/v1/models", "/nothing", "/health/"):
        assert guarded.http.get(path).status_code == 401, path
        assert guarded.http.get(path, headers={"x-api-key": KEY}).status_code != 401, path


def test_the_key_comes_before_the_body(guarded):
    status, _ = guarded.post(CHAT, b"not json", kind="text/plain")
    assert status == 401
    status, _ = guarded.post(CHAT, b"", "Content-Length: 99999999999")
    assert status == 401


def test_the_client_maps_keys_and_origins(guarded):
    with pytest.raises(openai.AuthenticationError):
        guarded.openai.models.list()
    client = guarded.openai.with_options(api_key=KEY)
    assert client.models.list().data
    with pytest.raises(openai.PermissionDeniedError):
        client.models.list(extra_headers={"origin": "http://evil.example"})


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("", 200),
        ("application/json", 200),
        ("application/json; charset=utf-8", 200),
        ("Application/JSON", 200),
        ("application/vnd.x+json", 200),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("multipart/form-data; boundary=x", 415),
        ("json", 415),
    ],
)
def test_kinds_of_body(quick, kind, status):
    assert quick.post(CHAT, json.dumps(BODY).encode(), kind=kind)[0] == status


def test_a_chunked_body(quick):
    data = json.dumps(BODY).encode()
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in (data[:5], data[5:])) + b"0\r\n\r\n"
    status, reply = quick.post(CHAT, chunks, "Transfer-Encoding: chunked")
    assert (status, reply["object"]) == (200, "chat.completion")


def test_a_body_that_says_it_is_too_long(quick):
    """It is refused by its announcement, whether or not the client goes on to send it."""
    head = (
        request(CHAT, {}).partition(b"Content-Length")[0] + b"Content-Length: 67108865\r\nConnection: close\r\n\r\n"
    )
    with quick.connection() as stream:
        stream.sendall(head)
        assert stream.recv(16).startswith(b"HTTP/1.1 413")
    with quick.connection() as stream:
        writer = threading.Thread(target=stream.sendall, args=(head + b" " * 67108865,))
        writer.start()
        status, reply = parsed(read_all(stream))
        writer.join()
    assert (status, reply["error"]["code"]) == (413, "body_too_large")


def test_a_chunked_body_that_is_too_long(quick):
    head = (
        b"POST %s HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
        % CHAT.encode()
    )
    piece = b"%x\r\n%s\r\n" % (1 << 20, b" " * (1 << 20))
    with quick.connection() as stream:
        writer = threading.Thread(target=stream.sendall, args=(head + piece * 66 + b"0\r\n\r\n",))
        writer.start()
        status, reply = parsed(read_all(stream))
        writer.join()
    assert (status, reply["error"]["code"]) == (413, "body_too_large")


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n",
        b"POST " + CHAT.encode() + b" HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n",
        b"POST " + CHAT.encode() + b" HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 100_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: h2c\r\nHTTP2-Settings: !\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 64,
        b"PRI * HTTP/2.0\r\n\r\n" + b"\x00" * 64,
        b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
    ],
    ids=lambda data: repr(data[:28]),
)
def test_what_is_no_request_ends_only_its_connection(quick, data):
    """Some of these make Hypercorn raise; nobody else may notice."""
    with quick.connection() as other:
        other.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert other.recv(12) == b"HTTP/1.1 200"
        with quick.connection() as stream:
            try:
                stream.sendall(data)
                stream.shutdown(socket.SHUT_WR)
                reply = read_all(stream)
            except OSError:  # it was ended before all was said
                reply = b""
        assert b" 200 " not in reply.partition(b"\r\n")[0]
        other.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert b'{"status":"ok"' in read_all(other).split(b"HTTP/1.1 200")[-1]


def test_offers_to_speak_http_2_are_not_taken_up(quick):
    """Java's client makes one with every request."""
    head = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close, Upgrade, HTTP2-Settings\r\n"
    status, reply = parsed(quick.raw(head + b"Upgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABk\r\n\r\n"))
    assert (status, reply["status"]) == (200, "ok")


def test_websockets_are_refused(quick):
    head = b"GET /web/ws HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: websocket\r\n"
    key = b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    with quick.connection() as stream:
        stream.sendall(head + key)
        assert stream.recv(12) == b"HTTP/1.1 404"


def test_many_requests_on_one_connection(quick):
    with quick.connection() as stream:
        for number in range(3):
            stream.sendall(request(CHAT, {**BODY, "temperature": 0} if number else {"messages": 5}))
            reply = b""
            while b"\r\n\r\n" not in reply or not reply.endswith(b"}}"):
                reply += stream.recv(1 << 16)
            assert reply.startswith(b"HTTP/1.1 200" if number else b"HTTP/1.1 400")
