"""HTTP itself: whatever is odd about a request, its client gets an answer that it can read, and can go on."""

import gzip
import json
import zlib

import pytest
import zstandard

CHAT = "/v1/chat/completions"
BODY = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2, "temperature": 0}
DATA = json.dumps(BODY).encode()


class Replies:
    """What comes back over one connection, reply by reply."""

    def __init__(self, stream):
        self._file = stream.makefile("rb")

    def next(self, method="POST"):
        """Status, headers by lower-case name, body."""
        status = int(self._file.readline().split()[1])
        headers = {}
        while line := self._file.readline().decode("latin-1").strip():
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        if method == "HEAD" or status in (100, 204):
            return status, headers, b""
        if headers.get("transfer-encoding") == "chunked":
            return status, headers, b"".join(iter(self._chunk, b""))
        return status, headers, self._file.read(int(headers["content-length"]) if "content-length" in headers else -1)

    def _chunk(self):
        piece = self._file.read(int(self._file.readline(), 16))
        self._file.readline()
        return piece

    def closed(self):
        return self._file.read() == b""


@pytest.fixture
def wire(quick):
    """A connection, to send bytes over and read replies from."""
    with quick.connection() as stream:
        replies = Replies(stream)
        replies.send = stream.sendall
        yield replies


def head(method, target, *headers, version="1.1"):
    return "\r\n".join([f"{method} {target} HTTP/{version}", "Host: localhost", *headers, "", ""]).encode("latin-1")


def error(reply, status, path=CHAT):
    """The error in the dialect of the path; its id is in the header too."""
    found, headers, body = reply
    assert (found, headers["content-type"]) == (status, "application/json"), body
    content = json.loads(body)
    if path.startswith("/v1/messages"):
        assert content["type"] == "error"
        assert content["request_id"] == headers["request-id"]
    else:
        assert set(content["error"]) == {"message", "type", "param", "code"}
        assert headers["x-request-id"]
    return content["error"]


# --- what is no request -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "status", "words"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400, "without TLS"),
        (b"hello\r\n\r\n", 400, "illegal request line"),
        (head("GET", "/h\xe9llo"), 400, "illegal request line"),
        (b"GET /health HTTP/1.1\r\n\r\n", 400, "Host"),
        (head("GET", "/health", "Host: other"), 400, "Host"),
        (head("GET", "/health", "no colon"), 400, "illegal header line"),
        (head("GET", "/health", "X: " + "y" * 300_000), 431, "more than 64 KiB"),
        (head("GET", "/health?" + "y" * 300_000), 431, "more than 64 KiB"),
        (head("GET", "/health", *["X: y"] * 50_000), 431, "more than 64 KiB"),
        (head("POST", CHAT, "Transfer-Encoding: gzip"), 501, "only chunked"),
        (head("POST", CHAT, "Content-Length: -5"), 400, "Content-Length"),
        (head("POST", CHAT, "Content-Length: 5", "Content-Length: 6"), 400, "Content-Length"),
        (head("POST", CHAT, "Transfer-Encoding: chunked") + b"zz\r\n", 400, "illegal chunk header"),
        (head("POST", CHAT, "Transfer-Encoding: chunked") + b"2\r\n{}xx", 400, "malformed chunk footer"),
    ],
)
def test_what_is_no_request_is_told_so(wire, data, status, words):
    wire.send(data)
    reply = wire.next()
    assert words in error(reply, status)["message"]
    assert reply[1]["connection"] == "close"
    assert wire.closed()


@pytest.mark.parametrize("rest", [b"X: " + b"y" * 70_000, b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"])
def test_what_is_no_message_is_told_so_in_its_dialect(wire, rest):
    wire.send(b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\n" + rest)
    error(reply := wire.next(), 400 if b"zz" in rest else 431, "/v1/messages")
    assert "y" * 9 not in reply[2].decode()


@pytest.mark.parametrize("version", ["Sec-WebSocket-Version: 8", "X: y"])
def test_what_is_no_handshake_is_told_so(wire, version):
    wire.send(head("GET", "/v1/sessions/x/ws", "Connection: upgrade", "Upgrade: websocket", version))
    assert "Sec-WebSocket-Version: 13" in error(wire.next(), 400)["message"]
    assert wire.closed()


def test_long_headers_are_taken(wire):
    wire.send(head("GET", "/health", "Cookie: " + "y" * 50_000))
    assert wire.next()[0] == 200


# --- paths and methods --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", CHAT, "OPTIONS, POST"),
        ("PUT", "/v1/messages", "OPTIONS, POST"),
        ("GET", "/v1/messages/count_tokens", "OPTIONS, POST"),
        ("PATCH", "/v1/sessions/x", "DELETE, GET, HEAD, OPTIONS"),
        ("DELETE", "/v1/sessions", "GET, HEAD, OPTIONS, POST"),
        ("PUT", "/v1/sessions/x/flash/1", "DELETE, OPTIONS"),
        ("POST", "/v1/models", "GET, HEAD, OPTIONS"),
        ("TRACE", "/health", "GET, HEAD, OPTIONS"),
        ("B" * 9000, "/health", "GET, HEAD, OPTIONS"),
    ],
)
def test_wrong_methods_hear_of_the_right_ones(wire, method, path, allowed):
    wire.send(head(method, path))
    reply = wire.next()
    assert allowed in error(reply, 405, path)["message"]
    assert reply[1]["allow"] == allowed
    wire.send(head("OPTIONS", path + "?a=b"))
    status, headers, _ = wire.next()
    assert (status, headers["allow"]) == (204, allowed)


def test_asking_what_there_is(wire):
    wire.send(head("OPTIONS", "*") + head("OPTIONS", "/nothing"))
    assert wire.next()[1]["allow"] == "DELETE, GET, HEAD, OPTIONS, POST"
    error(wire.next(), 404)


@pytest.mark.parametrize("path", ["/health", "/v1/models", "/v1/sessions", "/v1/sessions/nobody", "/nothing", CHAT])
def test_head_tells_what_get_would(wire, path):
    wire.send(head("GET", path) + head("HEAD", path) + head("HEAD", path))
    status, headers, _ = wire.next()
    for _ in range(2):
        same, others, _ = wire.next("HEAD")
        assert same == status
        assert others["content-type"] == headers["content-type"]


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("/chat/completions", "/v1/chat/completions"),
        ("/messages/count_tokens", "/v1/messages/count_tokens"),
        ("/models", "/v1/models"),
        ("/v1/v1/messages", "/v1/messages"),
        ("/v1/embeddings", ""),
        ("/", ""),
        ("/api/chat", ""),
        ("//", ""),
        ("/%00%ff", ""),
    ],
)
def test_unknown_paths(wire, path, hint):
    wire.send(head("POST", path, "Content-Length: 2") + b"{}")
    message = error(wire.next(), 404, path)["message"]
    assert message == "there is nothing at this path; " + (f"it is {hint}" if hint else "the API is under /v1")


def test_a_slash_too_many_and_queries_change_nothing(quick):
    for path in (CHAT + "/", CHAT + "?api-version=1", CHAT + "/?beta=true", "/v1/completions///"):
        reply = quick.http.post(path, json={**BODY, "prompt": "Hi"})
        assert reply.is_success, path
    assert quick.http.get("/v1/models/").json()["object"] == "list"
    error(_told(quick.http.post("/v1/messages/?beta=true", json={})), 400, "/v1/messages")


def _told(reply):
    return reply.status_code, reply.headers, reply.content


def test_names_may_be_percent_encoded(quick):
    assert quick.http.post("/v1/sessions", json={"id": "ticker_1"}).status_code == 201
    assert quick.http.get("/v1/sessions/%74icker%5F1").json()["id"] == "ticker_1"
    assert quick.http.post("/v1/sessions/ticker%5f1/push", json={"data": "x"}).json()["pushed"] == 1
    for odd in ("ticker%2F1", "ticker%001", "%ff", "ticker_1%20", "%"):
        assert quick.http.get(f"/v1/sessions/{odd}").status_code == 404


def test_whole_urls(wire):
    """As proxies send them; what stands there is the host that counts."""
    wire.send(head("GET", "http://127.0.0.1:1/v1/models?x=y") + head("GET", "HTTP://localhost"))
    assert wire.next()[0] == 200
    error(wire.next(), 404)
    wire.send(head("GET", "http://evil.example/v1/models") + head("GET", "http://[::1/v1/models"))
    assert error(wire.next(), 403)["param"] == "host"
    error(wire.next(), 404)


# --- connections --------------------------------------------------------------------------------------------------


def post(*headers, data=DATA, path=CHAT):
    return head("POST", path, "Content-Type: application/json", f"Content-Length: {len(data)}", *headers) + data


def chunked(*headers, data=DATA, trailers=b""):
    pieces = b"".join(b"%x;a=b\r\n%s\r\n" % (len(piece), piece) for piece in (data[:7], data[7:]))
    return head("POST", CHAT, "Transfer-Encoding: chunked", *headers) + pieces + b"0\r\n" + trailers + b"\r\n"


def test_a_connection_outlives_every_error(wire):
    refused = [
        (post(data=b"{"), 400),
        (post(data=b"[]"), 400),
        (post(path="/v1/nothing"), 404),
        (post(path="/v1/sessions/nobody/push"), 404),
        (post(path="/health"), 405),
        (post("Origin: http://evil.example"), 403),
        (head("POST", CHAT, "Content-Type: text/plain", f"Content-Length: {len(DATA)}") + DATA, 415),
        (post("Content-Encoding: br"), 415),
        (chunked("Content-Encoding: gzip"), 400),
        (head("DELETE", "/v1/sessions/nobody", "Content-Length: 5") + b"hello", 404),
        (head("GET", "/v1/models/nothing", "Transfer-Encoding: chunked") + b"1\r\nx\r\n0\r\n\r\n", 404),
    ]
    for data, status in refused:
        wire.send(data)
        error(wire.next(), status)
        wire.send(post())
        assert wire.next()[0] == 200


def test_requests_may_come_before_the_replies(wire):
    wire.send(post() + chunked(trailers=b"X-Sum: 1\r\n") + head("HEAD", "/health") + post(data=b"{}") + post()[:-9])
    assert [wire.next(method)[0] for method in ("POST", "POST", "HEAD", "POST")] == [200, 200, 200, 400]
    wire.send(post()[-9:])
    assert wire.next()[0] == 200


def test_a_line_end_too_many(wire):
    for data in (post() + b"\r\n", b"\r\n" + post(), b"\r\n", post()):
        wire.send(data)
        if len(data) > 2:
            assert wire.next()[0] == 200


@pytest.mark.parametrize("stream", [False, True])
def test_old_clients(wire, stream):
    """HTTP/1.0 knows no chunks: a reply ends with its connection."""
    data = json.dumps({**BODY, "stream": stream}).encode()
    wire.send(head("POST", CHAT, f"Content-Length: {len(data)}", version="1.0") + data)
    status, headers, body = wire.next()
    assert (status, headers["connection"]) == (200, "close")
    assert "transfer-encoding" not in headers
    assert body.endswith(b"data: [DONE]\n\n" if stream else b"}")
    assert wire.closed()


def test_no_host_is_needed_in_old_requests(wire):
    wire.send(b"GET /health HTTP/1.0\r\n\r\n")
    assert wire.next()[0] == 200


def test_a_client_that_asks_for_the_end_gets_it(wire):
    wire.send(post("Connection: close") + post())
    status, headers, _ = wire.next()
    assert (status, headers["connection"]) == (200, "close")


def test_headers_that_come_twice(wire):
    wire.send(post("Content-Type: application/json", "X-Superfluid-QoS: agent", "X-Superfluid-QoS: background"))
    assert wire.next()[0] == 200


# --- bodies that wait to be asked for -----------------------------------------------------------------------------

EXPECT = "Expect: 100-continue"


def test_a_body_that_waits_is_asked_for(wire):
    for _ in range(2):
        wire.send(post(EXPECT)[: -len(DATA)])
        assert wire.next()[0] == 100
        wire.send(DATA)
        assert wire.next()[0] == 200
    wire.send(post(EXPECT))  # and one that does not wait after all
    while (status := wire.next()[0]) == 100:
        pass
    assert status == 200


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        (CHAT, ["Content-Length: 99999999"], 413),
        ("/v1/messages", ["Content-Length: 99999999"], 413),
        (CHAT, ["Content-Length: 9", "Content-Encoding: br"], 415),
        (CHAT, ["Content-Length: 9", "Content-Type: text/plain"], 415),
        ("/v1/nothing", ["Content-Length: 9"], 404),
    ],
)
def test_a_body_that_nobody_wants_is_not_asked_for(wire, path, headers, status):
    wire.send(head("POST", path, EXPECT, *headers))
    error(wire.next(), status, path)


# --- packed bodies ------------------------------------------------------------------------------------------------


def zipped(data):
    return zstandard.ZstdCompressor().compress(data)


def deflated(data):
    raw = zlib.compressobj(wbits=-15)
    return raw.compress(data) + raw.flush()


@pytest.mark.parametrize(
    ("coding", "data"),
    [
        ("gzip", gzip.compress(DATA)),
        ("GZip", gzip.compress(DATA[:9]) + gzip.compress(DATA[9:])),
        ("x-gzip", gzip.compress(DATA)),
        ("deflate", zlib.compress(DATA)),
        ("deflate", deflated(DATA)),
        ("zstd", zipped(DATA)),
        ("zstd", zipped(DATA[:9]) + zipped(DATA[9:])),
        ("identity", DATA),
        ("", DATA),
    ],
    # By number: what gzip writes depends on the time, and tests that run beside each other must have the same names.
    ids=range(9),
)
def test_packed_bodies(wire, coding, data):
    wire.send(post(f"Content-Encoding: {coding}", data=data))
    assert wire.next()[0] == 200
    wire.send(chunked(f"Content-Encoding: {coding}", data=data))
    assert wire.next()[0] == 200


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress, deflated, zipped])
def test_packed_bodies_that_are_broken_or_too_long(wire, pack):
    coding = {gzip.compress: "gzip", zipped: "zstd"}.get(pack, "deflate")
    for data in (b"", DATA, pack(DATA)[:-1], pack(DATA)[:5], pack(b"[" * 50), pack(b"")):
        wire.send(post(f"Content-Encoding: {coding}", data=data))
        found = error(wire.next(), 400)
        assert found["param"] == "content-encoding" or found["code"] == "invalid_json"
    wire.send(post(f"Content-Encoding: {coding}", data=pack(b" " * ((64 << 20) + 1))))
    assert error(wire.next(), 413)["code"] == "body_too_large"


@pytest.mark.parametrize(("coding", "pack"), [("gzip", gzip.compress), ("zstd", zipped)])
def test_packed_bodies_end_with_a_whole_part_and_have_not_too_many(wire, coding, pack):
    for data in (pack(DATA) + pack(b" " * 9)[:-1], pack(DATA) + pack(b"") * 1024, zipped(b"")[:5]):
        wire.send(post(f"Content-Encoding: {coding}", data=data))
        assert error(wire.next(), 400)["param"] == "content-encoding"
    wire.send(post(f"Content-Encoding: {coding}", data=pack(DATA) + pack(b"") * 1023))
    assert wire.next()[0] == 200


@pytest.mark.parametrize("coding", ["br", "compress", "gzip, gzip", "gzip, zstd", "utf-8"])
def test_unknown_codings(wire, coding):
    for path in (CHAT, "/v1/messages"):
        wire.send(post(f"Content-Encoding: {coding}", path=path))
        reply = wire.next()
        assert "one of gzip, " in error(reply, 415, path)["message"]
        assert reply[1]["accept-encoding"] == "gzip, x-gzip, deflate, zstd"


# --- ids ----------------------------------------------------------------------------------------------------------


def test_every_reply_names_its_request(quick):
    seen = set()
    for method, path in (
        ("GET", "/health"), ("GET", "/metrics"), ("GET", "/v1/models"), ("GET", "/v1/sessions"), ("GET", "/nothing"),
        ("POST", CHAT), ("POST", "/v1/completions"), ("OPTIONS", CHAT), ("HEAD", "/v1/models"), ("GET", CHAT),
        ("POST", "/v1/messages"), ("POST", "/v1/messages/count_tokens"), ("GET", "/v1/messages/batches"),
    ):  # fmt: skip
        for body in ({**BODY, "prompt": "Hi"}, {}):
            headers = quick.http.request(method, path, json=body if method == "POST" else None).headers
            seen.add(headers["request-id" if path.startswith("/v1/messages") else "x-request-id"])
    assert len(seen) == 26


def test_nothing_of_this_ended_the_server(quick):
    assert quick.chat().status_code == 200
    log = (quick.daemon.sessions / "logs" / "serve.log").read_text()
    assert "failed" not in log
