"""Where the client goes, what it shows there, and what becomes of answers that are none."""

import pytest
from superfluid_client import Client, SessionBusy, SuperfluidError

from tests.pyclient.fake_web import TOKEN, HangUp, Raw, Status
from tests.pyclient.said import done

TREE = {"Tree": None}
NODES = {"Tree": {"nodes": []}}


def written(home, token=TOKEN):
    path = home / "sessions" / "web-token"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(token)
    return path


def test_every_post_shows_the_token_twice(web, session):
    web.rpc({"Cancel": {"session": 1}}, "Cancelling")
    web.stream({"session": 1, "max_tokens": 8, "provisional": False}, done())
    session.cancel()
    session.generate(8)
    assert [(seen.method, seen.path) for seen in web.seen] == [("POST", "/web/rpc"), ("POST", "/web/stream")]
    for seen in web.seen:
        assert seen.headers["authorization"] == [f"Bearer {TOKEN}"]
        assert seen.headers["x-superfluid-csrf"] == [TOKEN]
        assert seen.headers["content-type"] == ["application/json"]
        assert "origin" not in seen.headers


def test_the_environment_says_where_and_with_what(web, monkeypatch, home):
    monkeypatch.setenv("SUPERFLUID_WEB_URL", web.url + "/")
    monkeypatch.setenv("SUPERFLUID_WEB_TOKEN", "from-env\n")
    written(home)
    web.rpc(TREE, NODES)
    Client().tree()
    assert web.seen[0].headers["x-superfluid-csrf"] == ["from-env"]
    assert repr(Client()) == f"Client('{web.url}')"


@pytest.mark.parametrize(
    ("given", "shown"),
    [({"token": "given", "token_file": "file"}, "given"), ({"token_file": "file"}, "from-file"), ({}, "from-env")],
    ids=["token", "file", "environment"],
)
def test_what_is_given_goes_first(web, monkeypatch, home, tmp_path, given, shown):
    monkeypatch.setenv("SUPERFLUID_WEB_TOKEN", "from-env")
    written(home, "from-home")
    (tmp_path / "file").write_text("from-file\n")
    if "token_file" in given:
        given = {**given, "token_file": tmp_path / "file"}
    web.rpc(TREE, NODES)
    Client(web.url, **given).tree()
    assert web.seen[0].headers["x-superfluid-csrf"] == [shown]


def test_the_daemons_file_is_read_anew_for_each_request(web, home):
    written(home, "first")
    client = Client(web.url)
    for _ in range(2):
        web.rpc(TREE, NODES)
        client.tree()
        written(home, "second")
    assert [seen.headers["authorization"] for seen in web.seen] == [["Bearer first"], ["Bearer second"]]


def test_the_home_is_in_the_users_directory_unless_set(monkeypatch, tmp_path, web):
    monkeypatch.delenv("SUPERFLUID_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    written(tmp_path / ".superfluid", "at-home")
    web.rpc(TREE, NODES)
    Client(web.url).tree()
    assert web.seen[0].headers["x-superfluid-csrf"] == ["at-home"]


def test_a_missing_token_file_is_named(web, home):
    with pytest.raises(SuperfluidError, match=r"home/sessions/web-token: No such file .* --web\?"):
        Client(web.url)
    written(home)
    client = Client(web.url)
    (home / "sessions" / "web-token").unlink()
    with pytest.raises(SuperfluidError, match="web-token: No such file"):
        client.tree()


@pytest.mark.parametrize(("content", "says"), [(b"", "empty"), (b"\xff\n", "no token")])
def test_a_file_that_holds_no_token_is_named(tmp_path, content, says):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(SuperfluidError, match=f"file: .*{says}"):
        Client(token_file=tmp_path / "file")


@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.1:8460",
        "127.0.0.1:8460",
        "http://",
        "http://127.0.0.1:8460/web",
        "http://127.0.0.1:8460?x=1",
        "http://me@127.0.0.1:8460",
        "http://127.0.0.1:port",
        "unix:///tmp/sock",
    ],
)
def test_only_plain_http_to_a_host(url):
    with pytest.raises(ValueError):
        Client(url, TOKEN)


@pytest.mark.parametrize("url", ["http://localhost", "http://[::1]:8455", "http://127.0.0.1:8455/"])
def test_a_host_with_or_without_a_port(url):
    assert Client(url, TOKEN).transport.url == url.rstrip("/")


@pytest.mark.parametrize(
    ("code", "reason"),
    [(401, "Unauthorized"), (403, "Forbidden"), (413, ""), (429, "Too Many Requests"), (500, ""), (503, "")],
)
def test_any_other_status_is_raised(client, web, code, reason):
    body = {"Throttled": {"retry_after_ms": 40}} if code == 429 else {"Err": {"message": "no"}}
    web.rpc(TREE, Status(code, body, (("retry-after", "1"),)))
    with pytest.raises(SuperfluidError, match=f"^/web/rpc: {code} {reason}") as caught:
        client.tree()
    assert caught.value.status == code
    assert caught.value.message == str(caught.value)
    assert str(caught.value).endswith("no") == (code != 429)


def test_a_refusal_is_raised(client, web):
    web.rpc(TREE, {"Err": {"message": "unknown session 4"}})
    with pytest.raises(SuperfluidError, match=r"^unknown session 4$") as caught:
        client.tree()
    assert type(caught.value) is SuperfluidError
    assert caught.value.status is None


def test_a_busy_session_says_so(session, web):
    request = {"AppendMessage": {"session": 1, "role": 1, "text": "hi"}}
    web.rpc(request, {"Err": {"message": "session 1 is generating; wait for it or cancel it"}})
    with pytest.raises(SessionBusy, match="session 1 is generating"):
        session.user("hi")


def test_a_cancel_that_fails_otherwise_is_raised(session, web):
    web.rpc({"Cancel": {"session": 1}}, {"Err": {"message": "unknown session 1"}})
    with pytest.raises(SuperfluidError, match="unknown session 1"):
        session.cancel()


def test_an_event_that_is_not_there(session, web):
    web.rpc({"Read": {"session": 1, "cursor": 9}}, {"Events": {"events": []}})
    with pytest.raises(SuperfluidError, match="session 1 has no event 9"):
        session.event(9)


@pytest.mark.parametrize("answer", [Raw(b"<html>"), Raw(b"[1]"), Raw(b"{}"), Raw(b"\xff"), HangUp()])
def test_an_answer_that_is_none(client, web, answer):
    web.rpc(TREE, answer)
    with pytest.raises(SuperfluidError):
        client.tree()


def test_nobody_there(web, client):
    gone = Client("http://127.0.0.1:1", TOKEN)
    with pytest.raises(SuperfluidError, match=r"127\.0\.0\.1:1/web/rpc: .*refused") as caught:
        gone.tree()
    assert isinstance(caught.value, OSError)
    assert not gone.health()


@pytest.mark.parametrize(("answer", "well"), [(Raw(b""), True), (Status(503), False), (HangUp(), False)])
def test_health_needs_no_token(web, client, answer, well):
    web.health(answer)
    assert client.health() is well
    assert "authorization" not in web.seen[0].headers
