"""The routes of streaming sessions, field by field: statuses, limits, messages and objects."""

import json
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from superfluid.protocol import requests, responses
from tests.http.server import eventually, parsed
from tests.support.daemon import DEADLINE, create

PATH = "/v1/sessions"
FEED = PATH + "/feed"
HI = [{"role": "user", "content": "Hi"}]
SESSION = [
    "id", "object", "created", "last_used", "tokens", "kv_tokens", "busy", "turns", "data_end", "data_version",
    "pending", "pre_decode", "ready", "evicted",
]  # fmt: skip


@pytest.fixture(scope="module")
def fed(quick):
    """The session `feed`, append-only, with two lines in it."""
    assert quick.http.post(PATH, json={"id": "feed"}).status_code == 201
    assert quick.http.post(FEED + "/push", json={"data": ["one", "two"]}).status_code == 200
    eventually(lambda: quick.http.get(FEED).json()["data_version"] == 1)
    return quick


def test_objects(fed):
    session = fed.http.get(FEED).json()
    assert [*session][: len(SESSION)] == SESSION
    assert set(session) - set(SESSION) == {"frozen_end", "superfluid"}
    windowed = fed.http.post(PATH, json={"id": "windowed", "window": 700}).json()
    assert set(windowed) - set(SESSION) == {"window", "superfluid"}
    assert windowed["window"] == 700
    listed = fed.http.get(PATH).json()
    assert listed["object"] == "list"
    assert [one["id"] for one in listed["data"]][-2:] == ["feed", "windowed"]
    assert fed.http.delete(PATH + "/windowed").json() == {"id": "windowed", "object": "session", "deleted": True}


def test_acknowledgements(quick):
    assert quick.http.post(PATH, json={"id": "acknowledged"}).status_code == 201
    first = quick.http.post(PATH + "/acknowledged/push", json={"data": ["AAPL 231.10 +0.4%", "MSFT 415.22 -0.1%"]})
    assert first.json() == {
        "pushed": 2,
        "dropped": 0,
        "pending": 2,
        "pending_bytes": 36,
        "total_pushed": 2,
        "total_dropped": 0,
        "data_version": 0,
    }
    many = quick.http.post(PATH + "/acknowledged/push", json={"data": ["x"] * 5000}).json()
    assert many["pushed"] == 5000
    assert many["dropped"] >= 5000 - 4096
    assert many["pending"] <= 4096
    assert many["total_pushed"] == 5002
    quick.http.delete(PATH + "/acknowledged")


def test_numbers_are_names_too(fed):
    """A session is found by its number as well, from either API."""
    made = fed.http.post(PATH, json={"id": "made-last"}).json()
    with fed.daemon.client() as client:
        listed = client.ask(requests.List(), responses.Sessions).ids
    number = max(listed)
    assert fed.http.get(f"{PATH}/{number}").json() == made
    assert fed.http.post(f"{PATH}/{number}/push", json={"data": "x"}).json()["pushed"] == 1
    assert fed.http.delete(f"{PATH}/{number}").json()["deleted"]
    assert fed.http.get(PATH + "/made-last").status_code == 404
    with fed.daemon.client() as client:
        number = create(client)
    assert fed.http.get(f"{PATH}/{number}").json()["id"] == str(number)
    assert fed.http.post(f"{PATH}/{number}/push", json={"data": "x"}).json()["pushed"] == 1
    assert str(number) not in [session["id"] for session in fed.http.get(PATH).json()["data"]]
    assert fed.http.get(f"{PATH}/99999999").status_code == 404


CREATE = [
    ({"id": ""}, "id", "1 to 128 characters"),
    ({"id": "a" * 129}, "id", "1 to 128 characters"),
    ({"id": "a b"}, "id", "1 to 128 characters"),
    ({"id": "a/b"}, "id", "1 to 128 characters"),
    ({"id": "ä"}, "id", "1 to 128 characters"),
    ({"id": "feed\n"}, "id", "1 to 128 characters"),
    ({"id": "123"}, "id", "not digits alone"),
    ({"id": 5}, "id", "expected a string"),
    ({"window": 0}, "window", "a whole number from 1"),
    ({"window": -1}, "window", "a whole number from 1"),
    ({"window": 8.5}, "window", "a whole number"),
    ({"window": "8"}, "window", "a whole number"),
    ({"window": True}, "window", "a whole number"),
    ({"window": 2048}, "window", "window"),
    ({"window": 10**30}, "window", "a whole number"),
    ({"pre_decode": "yes"}, "pre_decode", "true or false"),
    ({"pre_decode": 1}, "pre_decode", "true or false"),
]
PUSH = [
    ({}, "data", "missing"),
    ({"data": None}, "data", "missing"),
    ({"data": []}, "data", "non-empty array"),
    ({"data": {}}, "data", "non-empty array"),
    ({"data": 5}, "data", "non-empty array"),
    ({"data": ["x", 5]}, "data[1]", "a string, got 5"),
    ({"data": ["x", None]}, "data[1]", "a string, got null"),
    ({"data": [["x"]]}, "data[0]", "a string"),
]
GENERATE = [
    ({"prompt": None}, "prompt", "missing"),
    ({"prompt": ""}, "prompt", "not empty"),
    ({"prompt": ["x"]}, "prompt", "expected a string"),
    ({"max_tokens": 0}, "max_tokens", "from 1 up"),
    ({"max_completion_tokens": "5"}, "max_completion_tokens", "a whole number"),
    ({"temperature": 3}, "temperature", "from 0 to 2"),
    ({"top_p": 2}, "top_p", "from 0 to 1"),
    ({"seed": "x"}, "seed", "a whole number"),
    ({"stop": [""]}, "stop[0]", "1 to 4096 characters"),
    ({"stream": 1}, "stream", "true or false"),
    ({"ignore_eos": 1}, "ignore_eos", "true or false"),
    ({"fast_answer": "up"}, "fast_answer", "expected an array"),
    ({"fast_answer": ["up", 1]}, "fast_answer[1]", "a word"),
    ({"fast_answer": [""]}, "fast_answer[0]", "a word"),
    ({"gap_threshold": "2"}, "gap_threshold", "a number"),
    ({"gap_threshold": True}, "gap_threshold", "a number"),
    ({"response_format": {"type": "json_object"}}, "response_format", "structured output"),
    ({"chat_template_kwargs": []}, "chat_template_kwargs", "an object"),
]
FLASH = [
    ({"query": None}, "query", "missing"),
    ({"query": ""}, "query", "not empty"),
    ({"query": 5}, "query", "expected a string"),
    ({"max_tokens": "16"}, "max_tokens", "a whole number"),
    ({"max_tokens": 1.5}, "max_tokens", "a whole number"),
]
WARM = [
    ({"messages": None}, "messages", "missing"),
    ({"messages": []}, "messages", "at least one message"),
    ({"messages": [{"role": "boss", "content": "x"}]}, "messages[0].role", "expected one of"),
    ({"tools": [{"type": "function"}]}, "tools", "does not do tools"),
]
ROUTES = [
    *((PATH, {}, entry) for entry in CREATE),
    *((FEED + "/push", {}, entry) for entry in PUSH),
    *((FEED + "/generate", {"prompt": "What is new?", "max_tokens": 1}, entry) for entry in GENERATE),
    *((FEED + "/flash", {"query": "What is new?"}, entry) for entry in FLASH),
    *((FEED + "/warm", {"messages": HI}, entry) for entry in WARM),
]


@pytest.mark.parametrize("case", ROUTES, ids=lambda case: f"{case[0][13:] or 'create'} {json.dumps(case[2][0])[:40]}")
def test_fields(fed, case):
    path, body, (fields, param, expected) = case
    reply = fed.http.post(path, json={**body, **fields})
    error = reply.json()["error"]
    assert (reply.status_code, error["type"], error["param"]) == (400, "invalid_request_error", param), error
    assert expected in error["message"]
    assert param in error["message"]


UNKNOWN = [
    "nothing",
    "feed2",
    "FEED",
    "0",
    "-",
    "%20feed",
    "feed%20",
    "a" * 200,
    "%00",
    "feed%00",
    "%F0%9F%90%8D",
    "%D9%A1",
    "9" * 30,
    "9" * 5000,
    "-1",
    "..%5C",
]


@pytest.mark.parametrize("key", UNKNOWN)
def test_sessions_that_are_not_there(fed, key):
    for method, path, body in (
        ("GET", "", None),
        ("DELETE", "", None),
        ("POST", "/push", {"data": "x"}),
        ("POST", "/generate", {"prompt": "x"}),
        ("POST", "/warm", {"messages": HI}),
        ("POST", "/flash", {"query": "x"}),
        ("GET", "/flash", None),
        ("DELETE", "/flash/1", None),
        ("GET", "/events", None),
    ):
        reply = fed.http.request(method, f"{PATH}/{key}{path}", json=body)
        assert reply.status_code == 404, (method, path)
        error = reply.json()["error"]
        assert error["type"] == "not_found_error"
        assert error["message"].startswith("no such session '")


def test_paths_and_methods(fed):
    for method, path, status in (
        ("GET", FEED + "/nothing", 404),
        ("GET", PATH + "/a%2Fb", 404),
        ("PUT", PATH, 405),
        ("POST", FEED, 405),
        ("GET", FEED + "/push", 405),
        ("GET", FEED + "/generate", 405),
        ("GET", FEED + "/warm", 405),
        ("GET", FEED + "/flash/1", 405),
        ("POST", FEED + "/events", 405),
        ("GET", FEED + "/ws", 426),
        ("DELETE", FEED + "/flash/one", 404),
        ("DELETE", FEED + "/flash/-1", 404),
        ("DELETE", FEED + "/flash/" + "9" * 40, 404),
    ):
        reply = fed.http.request(method, path)
        assert reply.status_code == status, (method, path)
        assert set(reply.json()["error"]) == {"message", "type", "param", "code"}
    assert set(fed.http.put(PATH).headers["allow"].split(", ")) == {"GET", "HEAD", "OPTIONS", "POST"}


def test_creating_without_a_body(fed):
    for body, kind in ((b"", ""), (b"", "application/json"), (b"{}", "application/json"), (b'{"id":null}', "")):
        status, session = fed.post(PATH, body, kind=kind)
        assert (status, session["object"]) == (201, "session")
        assert session["id"].startswith("sess_")
        assert fed.http.delete(f"{PATH}/{session['id']}").status_code == 200


def test_names_are_taken_once(fed):
    reply = fed.http.post(PATH, json={"id": "feed"})
    assert (reply.status_code, reply.json()["error"]["type"]) == (409, "conflict_error")
    assert "feed" in reply.json()["error"]["message"]


def test_flash_limits(fed):
    for asked, given in ((0, 1), (-5, 1), (1, 1), (256, 256), (257, 256), (10**30, 256), (None, 32)):
        entry = fed.http.post(FEED + "/flash", json={"query": f"At most {asked}?", "max_tokens": asked}).json()
        assert entry["max_tokens"] == given
        fed.http.delete(f"{FEED}/flash/{entry['id']}")
    ids = [fed.http.post(FEED + "/flash", json={"query": f"Number {n}?"}).json()["id"] for n in range(20)]
    assert ids == [*range(ids[0], ids[0] + 20)]
    reply = fed.http.post(FEED + "/flash", json={"query": "One more?"})
    assert (reply.status_code, reply.json()["error"]["type"]) == (400, "invalid_request_error")
    reply = fed.http.post(FEED + "/flash", json={"query": "Number 3?"})
    assert (reply.status_code, reply.json()["error"]["type"]) == (409, "conflict_error")
    assert "session 'feed'" in reply.json()["error"]["message"]
    remaining = [fed.http.delete(f"{FEED}/flash/{flash}").json()["remaining"] for flash in ids]
    assert remaining == [*range(19, -1, -1)]
    reply = fed.http.delete(f"{FEED}/flash/{ids[0]}")
    assert (reply.status_code, reply.json()["error"]["message"]) == (404, f"no such flash query '{ids[0]}'")


def test_texts_that_are_none(fed):
    """Half a surrogate pair is in no text that could be kept."""
    half = "half \\ud83d a pair"
    assert fed.http.post(PATH, json={"id": "odd"}).status_code == 201
    for path, field in (("push", "data"), ("flash", "query"), ("generate", "prompt")):
        status, reply = fed.post(f"{PATH}/odd/{path}", f'{{"{field}": "{half}", "max_tokens": 1}}'.encode())
        assert status == 200, reply
    (entry,) = fed.http.get(PATH + "/odd/flash").json()["data"]
    assert entry["query"] == "half \ufffd a pair"
    whole = '{"query": "\\ud83d\\ude00 a pair"}'
    assert fed.post(PATH + "/odd/flash", whole.encode())[1]["query"] == "\U0001f600 a pair"
    turn = f'{{"messages": [{{"role": "user", "content": "{half}"}}], "max_tokens": 1}}'
    status, reply = fed.post("/v1/chat/completions", turn.encode(), LAYERSCALE + ": odd")
    assert status == 200, reply
    assert fed.post(PATH, b'{"id": "\\ud800"}')[0] == 400
    assert fed.post("/v1/messages", turn.encode(), LAYERSCALE + ": odd")[0] == 200
    fed.http.delete(PATH + "/odd")


# --- the header ---------------------------------------------------------------------------------------------------

SUPERFLUID, LAYERSCALE = "x-superfluid-session-id", "x-layerscale-session-id"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([(SUPERFLUID, "feed")], 200),
        ([(LAYERSCALE, "feed")], 200),
        ([("X-LayerScale-Session-ID", "feed")], 200),
        ([(SUPERFLUID, "feed"), (LAYERSCALE, "feed")], 200),
        ([(LAYERSCALE, "feed"), (LAYERSCALE, "feed")], 200),
        ([(SUPERFLUID, "feed"), (LAYERSCALE, "other")], 400),
        ([(LAYERSCALE, "feed"), (LAYERSCALE, "other")], 400),
        ([(LAYERSCALE, "nothing")], 404),
        ([(LAYERSCALE, "")], 404),
        ([(LAYERSCALE, "a, feed")], 404),
    ],
)
def test_the_header(fed, headers, status):
    for path, body in (
        ("/v1/chat/completions", {"messages": HI, "max_tokens": 1}),
        ("/v1/messages", {"messages": HI, "max_tokens": 1}),
    ):
        lines = [f"{name}: {value}" for name, value in headers]
        found, reply = fed.post(path, json.dumps(body).encode(), *lines)
        assert found == status, reply
        if status == 400:
            assert SUPERFLUID in reply["error"]["message"]
        elif status == 404:
            assert reply["error"]["message"].startswith("no such session '")


def test_where_the_header_is_not_for(fed):
    reply = fed.http.post("/v1/completions", json={"prompt": "x"}, headers={LAYERSCALE: "feed"})
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, SUPERFLUID)
    reply = fed.http.post(
        "/v1/chat/completions", json={"messages": HI, "max_tokens": 1, "n": 2}, headers={LAYERSCALE: "feed"}
    )
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "n")


# --- one request at a time ----------------------------------------------------------------------------------------


def test_a_second_request_is_refused_while_one_runs(slow):
    assert slow.http.post(PATH, json={"id": "busy"}).status_code == 201
    path = PATH + "/busy"
    slow.http.post(path + "/push", json={"data": "a line"})
    body = {"messages": HI, "max_tokens": 1500, "ignore_eos": True, "temperature": 0, "stream": True}
    with slow.http.stream("POST", "/v1/chat/completions", json=body, headers={SUPERFLUID: "busy"}) as reply:
        assert reply.status_code == 200
        lines = reply.iter_lines()
        while "content" not in next(lines):
            pass
        refused = [
            slow.http.post(path + "/generate", json={"prompt": "x"}),
            slow.http.post(path + "/warm", json={"messages": HI}),
            slow.http.post("/v1/chat/completions", json={"messages": HI}, headers={LAYERSCALE: "busy"}),
            slow.http.delete(path),
        ]
        for again in refused:
            assert (again.status_code, again.json()["error"]["message"]) == (
                409,
                "session 'busy' has a request in flight",
            )
            assert again.json()["error"]["type"] == "conflict_error"
        again = slow.http.post("/v1/messages", json={"messages": HI, "max_tokens": 1}, headers={LAYERSCALE: "busy"})
        assert (again.status_code, again.json()["type"]) == (409, "error")
        # What goes on in the background, or only looks, is not refused.
        assert slow.http.post(path + "/push", json={"data": "more"}).status_code == 200
        assert slow.http.get(path).json()["busy"] is True
    eventually(lambda: not slow.http.get(path).json()["busy"])
    assert slow.http.delete(path).status_code == 200
    eventually(slow.idle)


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "in one piece"])
def test_a_turn_that_another_client_cancels(slow, stream):
    name = f"cancelled-{stream}"
    assert slow.http.post(PATH, json={"id": name}).status_code == 201
    body = {"messages": HI, "max_tokens": 1500, "ignore_eos": True, "stream": stream}
    with ThreadPoolExecutor(1) as pool, slow.daemon.client() as client:
        number = max(client.ask(requests.List(), responses.Sessions).ids)
        drawn = slow.metric("superfluid_decode_tokens_total")
        turn = pool.submit(slow.http.post, "/v1/chat/completions", json=body, headers={SUPERFLUID: name})
        eventually(lambda: slow.metric("superfluid_decode_tokens_total") > drawn + 5)
        client.ask(requests.Cancel(number), responses.Cancelling)
        reply = turn.result(DEADLINE)
    if stream:
        *_, fault, end = [frame for frame in reply.text.split("\n\n") if frame]
        assert end == "data: [DONE]"
        error = json.loads(fault.removeprefix("data: "))["error"]
    else:
        assert reply.status_code == 409
        error = reply.json()["error"]
    assert error["message"] == "the reply was cancelled by another client"
    assert slow.http.delete(f"{PATH}/{name}").status_code == 200


def test_leaving_ends_questions_and_warm_turns(slow):
    assert slow.http.post(PATH, json={"id": "left"}).status_code == 201
    for path, body in (
        ("generate", {"prompt": "Talk.", "ignore_eos": True}),
        ("generate", {"prompt": "Talk.", "ignore_eos": True, "stream": True}),
        ("warm", {"messages": [{"role": "user", "content": "word " * 1900}]}),
    ):
        data = json.dumps(body).encode()
        head = f"POST {PATH}/left/{path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n\r\n"
        with socket.create_connection(slow.address, DEADLINE) as stream:
            stream.sendall(head.encode() + data)
            eventually(lambda: slow.metric("superfluid_lanes_active") == 1)
        eventually(slow.idle)
    assert slow.http.delete(PATH + "/left").status_code == 200


# --- who may ask --------------------------------------------------------------------------------------------------


def test_web_pages_of_others_are_refused(fed):
    """What a page can send without asking first: a form, plain text, a request without a body, a WebSocket."""
    evil = "Origin: https://evil.example"
    before = fed.http.get(PATH).json(), fed.http.post(FEED + "/push", json={"data": "x"}).json()["total_pushed"]
    for path, kind in (
        (PATH, ""),
        (PATH, "text/plain"),
        (FEED + "/push", "text/plain"),
        (FEED + "/push", "application/x-www-form-urlencoded"),
        (FEED + "/generate", "application/json"),
    ):
        status, reply = fed.post(path, b'{"data": "x"}', evil, kind=kind)
        assert (status, reply["error"]["param"]) == (403, "origin")
        status, reply = fed.post(path, b'{"data": "x"}', "Origin: null", kind=kind)
        assert status == 403
        if kind and kind != "application/json":
            assert fed.post(path, b'{"data": "x"}', kind=kind)[0] == 415
    head = f"GET {FEED}/events HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{evil}\r\n\r\n"
    assert parsed(fed.raw(head.encode()))[0] == 403
    assert len(fed.http.get(PATH).json()["data"]) == len(before[0]["data"])
    assert fed.http.post(FEED + "/push", json={"data": "x"}).json()["total_pushed"] == before[1] + 1


def test_how_many_may_live(servers):
    server = servers(live_sessions=2)
    for name in ("one", "two"):
        assert server.http.post(PATH, json={"id": name}).status_code == 201
    reply = server.http.post(PATH)
    assert (reply.status_code, reply.json()["error"]["type"]) == (403, "permission_error")
    assert reply.json()["error"]["message"] == "this server permits at most 2 live session(s); delete one first"
    assert server.http.delete(PATH + "/one").status_code == 200
    assert server.http.post(PATH).status_code == 201


def test_a_feed_survives_a_restart(servers):
    server = servers()
    assert server.http.post(PATH, json={"id": "feed", "window": 600}).status_code == 201
    server.http.post(FEED + "/flash", json={"query": "How many?", "max_tokens": 4})
    server.http.post(FEED + "/push", json={"data": ["one", "two"]})
    eventually(lambda: server.http.get(FEED + "/flash").json()["data"][0]["fresh"])
    before, flash = server.http.get(FEED).json(), server.http.get(FEED + "/flash").json()
    assert server.daemon.stop() == 0
    server.close()
    again = servers()
    after = again.http.get(FEED).json()
    for name in ("id", "created", "tokens", "data_end", "data_version", "window", "evicted"):
        assert after[name] == before[name], name
    assert again.http.get(FEED + "/flash").json() == flash
    hit = again.http.post(FEED + "/generate", json={"prompt": "How many?"}).json()
    assert (hit["flash"], hit["text"]) == (True, flash["data"][0]["value"])
    assert again.http.post(FEED + "/push", json={"data": "three"}).json()["total_pushed"] == 3


def test_nothing_of_this_ended_the_server(fed):
    assert fed.chat().status_code == 200
    assert fed.metric("superfluid_worker_respawns_total") == 0
