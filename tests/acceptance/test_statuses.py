"""The status of a request that has several faults is that of the fault looked at first (decision 10)."""

import json

import pytest

from tests.web.server import ORIGIN

BODIES = {"/web/rpc": b'"List"', "/web/stream": b'{"session": 1, "max_tokens": 0}'}

FAULTS = [
    # what is wrong, the status, the header it changes, what stands there instead
    ("a missing token", 401, "Authorization", []),
    ("a wrong token", 401, "Authorization", ["Bearer " + "0" * 64]),
    ("an origin that is not listed", 403, "Origin", ["http://evil.example"]),
    ("a missing CSRF header", 403, "X-Superfluid-CSRF", []),
    ("a wrong CSRF header", 403, "X-Superfluid-CSRF", ["0" * 64]),
    ("another content type", 415, "Content-Type", ["text/plain"]),
    ("no content type", 415, "Content-Type", []),
    ("a body over 64 MiB", 413, "Content-Length", [str((64 << 20) + 1)]),
    ("no JSON", 400, "body", b"{"),
    ("no request", 422, "body", b'{"Frobnicate": {}}'),
]
"""in the order in which they are looked at"""


def send(web, path, faults):
    headers = {
        "Authorization": [f"Bearer {web.token}"],
        "X-Superfluid-CSRF": [web.token],
        "Origin": [ORIGIN],
        "Content-Type": ["application/json"],
    }
    body = BODIES[path]
    for _, _, header, value in faults:
        if header == "body":
            body = value
        else:
            headers[header] = value
    lines = [f"{name}: {value}" for name, values in headers.items() for value in values]
    return web.request("POST", path, lines, body)


@pytest.mark.parametrize("path", BODIES)
def test_no_fault(web, path):
    assert send(web, path, [])[0] == 200


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("first", range(len(FAULTS)), ids=[fault[0] for fault in FAULTS])
def test_the_first_fault_counts(web, path, first):
    """Alone, beside each of those that are looked at later, and beside all of them."""
    later = [fault for fault in FAULTS[first + 1 :] if fault[2] != FAULTS[first][2]]
    singly = [[fault] for fault in later if fault[1] != 413]  # the daemon waits a while for a body that was announced
    for others in [[], *singly, later]:
        status, headers, said = send(web, path, [FAULTS[first], *others])
        assert status == FAULTS[first][1], others
        assert list(json.loads(said)) == ["Err"]
        assert web.token.encode() not in said
        assert not any(web.token in value for value in headers.values())


@pytest.mark.parametrize("path", BODIES)
def test_who_is_refused_has_changed_nothing(web, path):
    session = web.session()
    order = {"session": session, "max_tokens": 4}
    body = order if path == "/web/stream" else {"AppendMessage": {"session": session, "role": 1, "text": "More."}}
    before = web.read(session)
    for _, status, header, value in FAULTS[:7]:
        lines = [
            line
            for line in [*web.auth, f"Origin: {ORIGIN}", "Content-Type: application/json"]
            if not line.lower().startswith(header.lower())
        ]
        lines += [f"{header}: {one}" for one in value]
        assert web.request("POST", path, lines, json.dumps(body).encode())[0] == status
    assert web.read(session) == before


def test_what_the_daemon_refuses_is_200(web):
    for request in [{"Read": {"session": 1 << 50, "cursor": 0}}, {"Generate": {"session": 1, "max_tokens": 1}}]:
        status, _, body = web.post("/web/rpc", request)
        assert (status, list(json.loads(body))) == (200, ["Err"])
    assert list(web.stream(session=1 << 50, max_tokens=1)[0]) == ["error"]


def test_health_wants_no_token(web):
    for headers in [[], ["Origin: http://evil.example"], ["Authorization: Bearer wrong"]]:
        status, reply, body = web.request("GET", "/web/health", headers)
        assert (status, body) == (200, b"")
        assert not [name for name in reply if name.startswith("access-control")]
