"""Who may ask, and what a request that is refused gets: statuses, their order, and what is never said."""

import json

import pytest

from tests.web.server import ORIGIN

JSON = "Content-Type: application/json"
WRONG = "0" * 64
PATHS = ["/web/rpc", "/web/stream"]


def lines(web, *headers):
    return [line.replace("TOKEN", web.token) for line in headers]


BEARER, CSRF = "Authorization: Bearer TOKEN", "X-Superfluid-CSRF: TOKEN"

REQUESTS = {
    "all in order": (200, [BEARER, CSRF]),
    "nothing": (401, []),
    "no token": (401, [CSRF]),
    "wrong token": (401, [f"Authorization: Bearer {WRONG}", CSRF]),
    "half a token": (401, [BEARER[:-2], CSRF]),
    "more than a token": (401, [BEARER + "0", CSRF]),
    "empty token": (401, ["Authorization: Bearer ", CSRF]),
    "another scheme": (401, ["Authorization: Basic TOKEN", CSRF]),
    "bearer is case-sensitive": (401, ["Authorization: bearer TOKEN", CSRF]),
    "a token that is no ASCII": (401, ["Authorization: Bearer \xff", CSRF]),
    "the same token twice": (200, [BEARER, BEARER, CSRF]),
    "differing tokens": (401, [BEARER, f"Authorization: Bearer {WRONG}", CSRF]),
    "a token and another scheme": (401, [BEARER, "Authorization: Basic TOKEN", CSRF]),
    "no csrf": (403, [BEARER]),
    "wrong csrf": (403, [BEARER, f"X-Superfluid-CSRF: {WRONG}"]),
    "the same csrf twice": (200, [BEARER, CSRF, CSRF]),
    "differing csrf": (403, [BEARER, CSRF, f"X-Superfluid-CSRF: {WRONG}"]),
    "a listed origin": (200, [BEARER, CSRF, f"Origin: {ORIGIN}"]),
    "an unlisted origin": (403, [BEARER, CSRF, "Origin: http://evil.example"]),
    "another port": (403, [BEARER, CSRF, "Origin: http://localhost:5174"]),
    "a null origin": (403, [BEARER, CSRF, "Origin: null"]),
    "a listed origin and another": (403, [BEARER, CSRF, f"Origin: {ORIGIN}", "Origin: http://evil.example"]),
    "401 comes before 403": (401, ["Origin: http://evil.example"]),
}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("case", REQUESTS)
def test_requests(web, path, case):
    status, headers = REQUESTS[case]
    body = b'"List"' if path == "/web/rpc" else b'{"session": 0, "max_tokens": 1}'
    found, reply, said = web.request("POST", path, [*lines(web, *headers), JSON], body)
    assert found == status
    if status != 200:
        assert list(json.loads(said)) == ["Err"]
        assert list(json.loads(said)["Err"]) == ["message"]
        assert web.token.encode() not in said
        assert reply["content-type"] == "application/json"
    assert not [name for name in reply if name.startswith("access-control")]


BODIES = {
    "in order": (200, [JSON], b'"List"'),
    "with a charset": (200, ["Content-Type: application/json; charset=utf-8"], b'"List"'),
    "no content type": (415, [], b'"List"'),
    "another content type": (415, ["Content-Type: text/plain"], b'"List"'),
    "a form": (415, ["Content-Type: application/x-www-form-urlencoded"], b"{"),
    "a content type and another": (415, [JSON, "Content-Type: text/plain"], b'"List"'),
    "too long as announced": (413, [JSON, f"Content-Length: {(64 << 20) + 1}"], b"{"),
    "415 comes before 413": (415, [f"Content-Length: {(64 << 20) + 1}"], b"{"),
    "no body": (400, [JSON], b""),
    "not JSON": (400, [JSON], b"{"),
    "not UTF-8": (400, [JSON], b'"\xff"'),
    "no number": (400, [JSON], b'{"SetBackgroundRate": {"divisor": NaN}}'),
    "nested too deep": (400, [JSON], b"[" * 100_000),
    "a number without end": (400, [JSON], b'{"Cancel": {"session": ' + b"9" * 5000 + b"}}"),
    "no request": (422, [JSON], b'{"Frobnicate": {}}'),
    "a number": (422, [JSON], b"7"),
    "two requests": (422, [JSON], b'{"List": null, "Tree": null}'),
    "a field that is missing": (422, [JSON], b'{"Cancel": {}}'),
    "a field that is wrong": (422, [JSON], b'{"Cancel": {"session": "1"}}'),
    "a float for a whole number": (422, [JSON], b'{"Cancel": {"session": 1.0}}'),
    "half a surrogate pair": (422, [JSON], b'{"AppendMessage": {"session": 0, "role": 1, "text": "\\ud800"}}'),
    "half a surrogate pair for a number": (422, [JSON], b'{"Cancel": {"session": "\\ud800"}}'),
    "an unknown field": (200, [JSON], b'{"Sessions": {"include_archived": false, "more": 1}}'),
    "a name with null": (200, [JSON], b'{"Tree": null}'),
    "a daemon's refusal": (200, [JSON], b'{"Read": {"session": 99, "cursor": 0}}'),
}


@pytest.mark.parametrize("case", BODIES)
def test_bodies(web, case):
    status, headers, body = BODIES[case]
    found, _, said = web.request("POST", "/web/rpc", [*web.auth, *headers], body)
    assert (found, "Err" in json.loads(said)) == (status, status != 200 or case == "a daemon's refusal")
    unknown = [f"Authorization: Bearer {WRONG}", CSRF]
    assert web.request("POST", "/web/rpc", [*lines(web, *unknown), *headers], body)[0] == 401


def test_a_whole_number_beyond_all_floats(web):
    params = {"temperature": 10**400, "top_p": 1.0, "min_p": 0.0, "top_k": 0, "seed": 0}
    assert "params.temperature is inf" in web.rpc({"Create": {"parent": None, "params": params}})["Err"]["message"]


STREAMS = {
    "a session that is missing": (422, {"max_tokens": 1}),
    "tokens that are missing": (422, {"session": 1}),
    "no object": (422, [1]),
    "a name": (422, "Tree"),
    "provisional that is no flag": (422, {"session": 1, "max_tokens": 1, "provisional": 1}),
    "provisional that is null": (422, {"session": 1, "max_tokens": 1, "provisional": None}),
}


@pytest.mark.parametrize("case", STREAMS)
def test_orders(web, case):
    status, order = STREAMS[case]
    assert web.post("/web/stream", order)[0] == status


def test_a_body_past_the_bound_without_a_length(web):
    piece = b" " * (1 << 20)
    with web.connection() as stream:
        head = ["POST /web/rpc HTTP/1.1", "Host: localhost", *web.auth, JSON, "Transfer-Encoding: chunked"]
        stream.sendall("\r\n".join([*head, "Connection: close"]).encode() + b"\r\n\r\n")
        for _ in range(65):
            stream.sendall(b"%x\r\n" % len(piece) + piece + b"\r\n")
        stream.sendall(b"0\r\n\r\n")
        assert stream.recv(1 << 16).startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/web/health", 200),
        ("HEAD", "/web/health", 200),
        ("POST", "/web/health", 405),
        ("GET", "/web/rpc", 405),
        ("OPTIONS", "/web/rpc", 405),
        ("OPTIONS", "/web/stream", 405),
        ("PUT", "/web/stream", 405),
        ("POST", "/web/ws", 405),
        ("GET", "/web/ws", 401),
        ("GET", "/", 404),
        ("GET", "/web", 404),
        ("POST", "/web/rpc/", 404),
        ("POST", "/v1/chat/completions", 404),
    ],
)
def test_routes(web, method, path, status):
    preflight = [f"Origin: {ORIGIN}", "Access-Control-Request-Method: POST"]
    found, headers, body = web.request(method, path, preflight)
    assert found == status
    assert not [name for name in headers if name.startswith("access-control")]
    if path == "/web/health" and status == 200:
        assert body == b""
    elif status == 405:
        assert headers["allow"] in ("GET", "POST")


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:1", 200),
        ("127.0.0.1:8455", 200),
        ("127.0.0.2", 200),
        ("[::1]:8455", 200),
        ("evil.example", 403),
        ("localhost.evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("192.168.1.7", 403),
        ("localhost@evil.example", 403),
        ("", 403),
    ],
)
def test_hosts(web, host, status):
    for method, path, headers in [("GET", "/web/health", []), ("POST", "/web/rpc", [*web.auth, JSON])]:
        assert web.request(method, path, headers, b'"List"' if method == "POST" else b"", host=host)[0] == status


HANDSHAKE = ["Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13"]
HANDSHAKE.append("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==")
FROM, V1, SUB = f"Origin: {ORIGIN}", "Sec-WebSocket-Protocol: superfluid.v1", "superfluid.token.TOKEN"

HANDSHAKES = {
    "as a page asks": (101, [FROM, f"{V1}, {SUB}"]),
    "without a blank": (101, [FROM, f"{V1},{SUB}"]),
    "token first": (101, [FROM, f"Sec-WebSocket-Protocol: {SUB}, superfluid.v1"]),
    "two lines": (101, [FROM, f"Sec-WebSocket-Protocol: {SUB}", V1]),
    "a header's token, no subprotocol": (101, [FROM, BEARER]),
    "a header's token, the subprotocol": (101, [FROM, BEARER, V1]),
    "both tokens": (101, [FROM, BEARER, f"{V1}, {SUB}"]),
    "the same token twice": (101, [FROM, f"{V1}, {SUB}, {SUB}"]),
    "no token": (401, [FROM, V1]),
    "wrong token": (401, [FROM, f"{V1}, superfluid.token.{WRONG}"]),
    "an empty token": (401, [FROM, f"{V1}, superfluid.token."]),
    "one right, one wrong": (401, [FROM, f"{V1}, {SUB}, superfluid.token.{WRONG}"]),
    "a right header, a wrong entry": (401, [FROM, BEARER, f"{V1}, superfluid.token.{WRONG}"]),
    "a wrong header, a right entry": (401, [FROM, f"Authorization: Bearer {WRONG}", f"{V1}, {SUB}"]),
    "no origin": (403, [f"{V1}, {SUB}"]),
    "another origin": (403, ["Origin: http://evil.example", f"{V1}, {SUB}"]),
    "two origins": (403, [FROM, "Origin: http://evil.example", f"{V1}, {SUB}"]),
    "401 comes before 403": (401, ["Origin: http://evil.example", V1]),
    "not our subprotocol": (400, [FROM, BEARER, "Sec-WebSocket-Protocol: chat"]),
    "only the token": (400, [FROM, f"Sec-WebSocket-Protocol: {SUB}"]),
    "403 comes before 400": (403, ["Origin: http://evil.example", f"Sec-WebSocket-Protocol: {SUB}"]),
}


@pytest.mark.parametrize("case", HANDSHAKES)
def test_handshakes(web, case):
    status, headers = HANDSHAKES[case]
    head = ["GET /web/ws HTTP/1.1", "Host: 127.0.0.1", *HANDSHAKE, *lines(web, *headers)]
    with web.connection() as stream:
        stream.sendall("\r\n".join(head).encode() + b"\r\n\r\n")
        reply = stream.recv(1 << 16)
        while status != 101 and (piece := stream.recv(1 << 16)):
            reply += piece
    said = reply.decode("latin-1").lower()
    assert said.startswith(f"http/1.1 {status} ")
    assert web.token not in said
    assert "access-control" not in said
    if status == 101:
        offered = any("superfluid.v1" in line for line in headers)
        assert ("sec-websocket-protocol: superfluid.v1\r\n" in said) is offered
    else:
        assert said.partition("\r\n\r\n")[2].startswith('{"err":{"message":')


def test_a_websocket_elsewhere_or_by_another_name(web):
    for path, host, status in [("/web/rpc", "localhost", 404), ("/web/ws", "evil.example", 403)]:
        found, _, body = web.request("GET", path, lines(web, *HANDSHAKE, FROM, f"{V1}, {SUB}"), host=host)
        assert (found, list(json.loads(body))) == (status, ["Err"])


def test_a_plain_get_of_the_websocket(web):
    assert web.request("GET", "/web/ws", lines(web, FROM, BEARER))[0] == 426
