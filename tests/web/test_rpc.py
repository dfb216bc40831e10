"""Every request of the vocabulary, over `/web/rpc` and `/web/ws`, against what the unix socket answers."""

import gzip
import json
import re

import pytest
import zstandard

from superfluid.protocol import jsonform, requests, responses, shapes
from superfluid.protocol.codes import PurgeMode
from superfluid.protocol.records import Drop, GenParams
from superfluid.protocol.requests import Request
from superfluid.protocol.responses import Response
from superfluid_cli.exits import ServerSaid
from tests.support.daemon import GREEDY
from tests.web.server import ask, read_all, run

TOOL = '{"type":"function","function":{"name":"f","description":"","parameters":{"type":"object","properties":{}}}}'

REQUESTS = {
    requests.Create: lambda s: requests.Create(s, GREEDY),
    requests.Append: lambda s: requests.Append(s, None, (20, 21)),
    requests.AppendMessage: lambda s: requests.AppendMessage(s, 1, "Grüße, 世界 🎈"),
    requests.Read: lambda s: requests.Read(s, 0),
    requests.AppendToolResult: lambda s: requests.AppendToolResult(s, 9, "x"),
    requests.OpenToolCalls: requests.OpenToolCalls,
    requests.List: lambda s: requests.List(),
    requests.Cancel: requests.Cancel,
    requests.Unsubscribe: lambda s: requests.Unsubscribe(1 << 40),
    requests.Fork: lambda s: requests.Fork(s, 1, GenParams(0.7, 0.95, 0.0, 0, (1 << 64) - 1)),
    requests.Tree: lambda s: requests.Tree(),
    requests.Sessions: lambda s: requests.Sessions(True),
    requests.SetMeta: lambda s: requests.SetMeta(s, 0, "title", None),
    requests.Rebase: lambda s: requests.Rebase(s, (Drop(1, 2),), None),
    requests.Purge: lambda s: requests.Purge(s, 0, PurgeMode.CASCADE),
    requests.SetQos: lambda s: requests.SetQos(s, 1, False),
    requests.SetBackgroundRate: lambda s: requests.SetBackgroundRate(4),
    requests.Inspect: requests.Inspect,
    requests.SetLogLevel: lambda s: requests.SetLogLevel("info"),
    requests.Metrics: lambda s: requests.Metrics(),
    requests.AppendBlock: lambda s: requests.AppendBlock(s, 1, 2, "{}"),
    requests.RequestPermission: lambda s: requests.RequestPermission(s, 9, "May I?"),
    requests.RespondPermission: lambda s: requests.RespondPermission(s, 9, True),
    requests.RequestToolCancel: lambda s: requests.RequestToolCancel(s, 9),
    requests.AppendToolOutcome: lambda s: requests.AppendToolOutcome(s, 9, 1, "x"),
    requests.Ledger: requests.Ledger,
    requests.PutMedia: lambda s: requests.PutMedia(b"\x00\xff", ""),
    requests.AppendImage: lambda s: requests.AppendImage(s, 1, "0" * 64, "", ""),
    requests.GcMedia: lambda s: requests.GcMedia(),
    requests.Complete: lambda s: requests.Complete("a", "b", 0, 2),
    requests.Trim: lambda s: requests.Trim(s, 1),
    requests.Pin: lambda s: requests.Pin(s, 0),
    requests.AppendSystem: lambda s: requests.AppendSystem(s, None, (TOOL,)),
    requests.Status: lambda s: requests.Status(),
    requests.Open: lambda s: requests.Open(None, 64, True),
    requests.Name: lambda s: requests.Name(s, f"name-{s}"),
    requests.Names: lambda s: requests.Names(),
    requests.Resolve: lambda s: requests.Resolve(str(s)),
    requests.FeedState: requests.FeedState,
    requests.Push: lambda s: requests.Push(s, ("a", "b")),
    requests.PushNumbered: lambda s: requests.PushNumbered(s, ("a", "b"), 3, 9),
    requests.FlashAdd: lambda s: requests.FlashAdd(s, "Which?", 4),
    requests.FlashList: requests.FlashList,
    requests.FlashRemove: lambda s: requests.FlashRemove(s, 1),
    requests.Warm: lambda s: requests.Warm(s, ((1, "Hello."),)),
}
STREAMS = {requests.Generate, requests.Subscribe, requests.Ask, requests.FeedSubscribe}
MOVING = {
    requests.Status,
    requests.Metrics,
    requests.Complete,
    requests.Open,
    requests.Name,
    requests.Names,
    requests.FeedState,
    requests.Warm,
}
"""Whose replies are other ones each time."""


def test_every_request_is_in_the_table():
    assert set(REQUESTS) | STREAMS == set(shapes.variants_of(Request))


def alike(reply, session, kind):
    """A reply without what differs from session to session and from time to time."""
    if kind in MOVING:
        ((name, fields),) = reply.items()
        return name, sorted(fields) if name != "Err" else fields
    if kind is requests.Sessions:
        return reply
    text = json.dumps(reply, ensure_ascii=False)
    text = re.sub(r'"ts_unix_ms": \d+', '"ts_unix_ms": 0', text)
    text = re.sub(rf'"(id|session|parent)": {session}\b', r'"\1": "own"', text)
    text = re.sub(rf"\bsession {session}\b", "session own", text)
    if kind in (requests.Create, requests.Fork, requests.Rebase, requests.Trim):
        text = re.sub(r'"session": \d+', '"session": "new"', text)
    return json.loads(text.replace(f'"sessions": [{session}]', '"sessions": ["own"]'))


def over_socket(client, request):
    try:
        return jsonform.to_json(Response, client.call(request))
    except ServerSaid as said:
        return jsonform.to_json(Response, responses.Err(str(said)))


@pytest.mark.parametrize("kind", REQUESTS, ids=lambda kind: kind.__name__)
def test_the_transports_agree(web, kind):
    make = REQUESTS[kind]
    first, second, third = (web.session() for _ in range(3))
    with web.daemon.client() as client:
        expected = alike(over_socket(client, make(first)), first, kind)
    heard = []

    async def talk():
        async with web.socket() as ws:
            heard.append(await ask(ws, jsonform.to_json(Request, make(third))))

    # Lists are read at one moment by all three; what makes sessions is told apart by its own.
    run(talk)
    assert alike(heard[0], third, kind) == expected
    found = alike(web.rpc(jsonform.to_json(Request, make(second))), second, kind)
    if kind is requests.Unsubscribe:
        assert "/web/ws" in found["Err"]["message"]
    else:
        assert found == expected


@pytest.mark.parametrize(
    "request_",
    [
        {"Generate": {"session": 1, "max_tokens": 4}},
        {"Subscribe": {"session": 1, "cursor": 0, "provisional": False}},
        {"Unsubscribe": {"sub": 1}},
        {
            "Ask": {
                "session": 1,
                "prompt": "x",
                "stop": [],
                "fast_answer": [],
                "gap_threshold": 2,
            }
        },
        {"FeedSubscribe": {"session": 1}},
    ],
    ids=lambda request: next(iter(request)),
)
def test_streams_are_sent_elsewhere(web, request_):
    message = web.rpc(request_)["Err"]["message"]
    assert "/web/ws" in message
    assert "/web/stream" in message


def test_names_alone_and_with_null(web):
    assert web.rpc("Tree") == web.rpc({"Tree": None})


def test_missing_optional_fields(web):
    session = web.rpc({"Create": {"params": jsonform.to_json(GenParams, GREEDY)}})["Created"]["session"]
    assert "Committed" in web.rpc({"Append": {"session": session, "span": [20]}})
    assert "Created" in web.rpc({"Fork": {"session": session, "at_event": 1}})
    assert web.rpc({"SetMeta": {"session": session, "expected_version": 0}}) == {"Meta": {"version": 1}}


def test_numbers_keep_their_precision(web):
    params = {"temperature": 0.7, "top_p": 0.95, "min_p": 0.05, "top_k": 40, "seed": (1 << 64) - 1}
    session = web.rpc({"Create": {"parent": None, "params": params}})["Created"]["session"]
    _, _, body = web.post("/web/rpc", {"Inspect": {"session": session}})
    shown = '"params":{"temperature":0.7,"top_p":0.95,"min_p":0.05,"top_k":40,"seed":18446744073709551615}'
    assert shown in body.decode()


def test_a_large_body(web):
    session = web.session(None)
    text = "word " * 400_000
    reply = web.rpc({"AppendMessage": {"session": session, "role": 1, "text": text}})
    assert list(reply) == ["Committed"]
    assert web.read(session)[-1]["body"]["Message"]["text"] == text


def test_a_connection_is_kept(web):
    body = b'"List"'
    head = ["POST /web/rpc HTTP/1.1", "Host: localhost", *web.auth, "Content-Type: application/json"]
    data = "\r\n".join([*head, f"Content-Length: {len(body)}"]).encode() + b"\r\n\r\n" + body
    with web.connection() as stream:
        for _ in range(3):
            stream.sendall(data)
            reply = b""
            while not reply.endswith(b"]}}"):
                reply += stream.recv(1 << 16)
            assert reply.startswith(b"HTTP/1.1 200")


def test_packed_bodies(web):
    kind = [*web.auth, "Content-Type: application/json"]
    for coding, data in (("gzip", gzip.compress(b'"List"')), ("zstd", zstandard.compress(b'"List"'))):
        assert web.request("POST", "/web/rpc", [*kind, f"Content-Encoding: {coding}"], data)[0] == 200
    status, headers, body = web.request("POST", "/web/rpc", [*kind, "Content-Encoding: br"], b'"List"')
    assert (status, headers["accept-encoding"]) == (415, "gzip, x-gzip, deflate, zstd")
    assert "content-encoding" in json.loads(body)["Err"]["message"]
    status, _, body = web.request("POST", "/web/rpc", [*kind, "Content-Encoding: gzip"], b'"List"')
    assert (status, json.loads(body)["Err"]["message"]) == (400, "content-encoding: the body is not gzip")


def test_what_is_no_request_is_told_so(web):
    for line, status in (("X: " + "y" * 200_000, 431), ("no colon", 400), ("Transfer-Encoding: gzip", 501)):
        found, headers, body = web.request("POST", "/web/rpc", [*web.auth, line])
        assert (found, headers["content-type"], headers["connection"]) == (status, "application/json", "close")
        assert json.loads(body)["Err"]["message"]


def test_a_body_is_asked_for_once_the_token_was_seen(web):
    head = "POST /web/rpc HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nConnection: close\r\n"
    head += "Content-Type: application/json\r\nContent-Length: 6"
    with web.connection() as stream:
        stream.sendall((head + "\r\n\r\n").encode())
        assert stream.recv(1 << 16).startswith(b"HTTP/1.1 401")
    with web.connection() as stream:
        stream.sendall("\r\n".join([head, *web.auth, "", ""]).encode())
        assert stream.recv(1 << 16).startswith(b"HTTP/1.1 100")
        stream.sendall(b'"List"')
        assert read_all(stream).startswith(b"HTTP/1.1 200")
