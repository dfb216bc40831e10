"""`superfluid push --url`: the same promises over a network."""

import json
import subprocess

import pytest

from superfluid_cli.push.web_end import Server
from tests.cli.fake_feed import NAME, Disk
from tests.cli.fake_server import DEADLINE
from tests.cli.fake_web_feed import KEY, FakeWebFeed
from tests.cli.processes import PROGRAM, run

Env = dict[str, str]


@pytest.fixture
def env(env: Env) -> Env:
    return env | {"SUPERFLUID_API_KEY": KEY}


def start(arguments: list[str], env: Env) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*PROGRAM, "push", NAME, *arguments],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
    )


@pytest.mark.parametrize("tells", [True, False])
def test_lines(env: Env, tells: bool) -> None:
    disk = Disk()
    with FakeWebFeed(disk, tells=tells) as feed:
        ran = run(["push", NAME, "--url", feed.url, "--wait"], env, input="a\nzürich\ntail")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
    assert disk.entries == ["a", "zürich", "tail"]


def test_much(env: Env) -> None:
    disk = Disk()
    lines = [f"{number:060}" for number in range(20_000)]
    with FakeWebFeed(disk) as feed:
        assert run(["push", NAME, "--url", feed.url, "--wait"], env, input="\n".join(lines)).returncode == 0
    assert disk.entries == lines


@pytest.mark.parametrize("tells", [True, False])
def test_a_server_that_dies_and_comes_back(env: Env, tells: bool) -> None:
    """What it had not ingested is sent again; a server that tells nothing may get some twice."""
    disk = Disk()
    feed = FakeWebFeed(disk, tells=tells, appetite=1, pushes=3)
    with start(["--url", feed.url, "--wait"], env) as process:
        assert process.stdin is not None
        for count in range(1, 4):
            process.stdin.write(b"%d\n%d again\n" % (count, count))
            feed.wait_for_pushes(count)
        assert feed.died.wait(DEADLINE)
        process.stdin.write(b"tail")
        process.stdin.close()
        with FakeWebFeed(disk, port=feed.port, tells=tells):
            assert process.stderr is not None
            err = process.stderr.read()
            assert process.wait(DEADLINE) == 0
    expected = [*(line for count in range(1, 4) for line in (f"{count}", f"{count} again")), "tail"]
    assert list(dict.fromkeys(disk.entries)) == expected
    assert not tells or disk.entries == expected
    assert b"connected again" in err


def test_it_answers_pings_while_nothing_comes(env: Env) -> None:
    with FakeWebFeed(Disk()) as feed, start(["--url", feed.url], env) as process:
        assert process.stdin is not None
        process.stdin.write(b"a\n")
        feed.wait_for_pushes(1)
        process.stdin.write(b"b\n")
        feed.wait_for_pushes(2)
        process.stdin.close()
        assert process.wait(DEADLINE) == 0
        assert feed.pongs == 1


def test_create(env: Env) -> None:
    disk = Disk(exists=False)
    with FakeWebFeed(disk) as feed:
        for _ in range(2):
            ran = run(["push", NAME, "a", "--url", feed.url, "--create", "--window", "512", "--wait"], env)
            assert (ran.returncode, ran.stderr) == (0, "")
    assert disk.entries == ["a", "a"]


def test_no_such_session(env: Env) -> None:
    with FakeWebFeed(Disk()) as feed:
        ran = run(["push", "other", "a", "--url", feed.url], env)
    assert (ran.returncode, ran.stdout, ran.stderr) == (4, "", "superfluid: no such session 'other'\n")


def test_a_wrong_key(env: Env) -> None:
    with FakeWebFeed(Disk()) as feed:
        ran = run(["push", NAME, "a", "--url", feed.url, "--api-key", "x"], env)
    assert (ran.returncode, ran.stderr) == (1, "superfluid: no key\n")


def test_nobody_there(env: Env) -> None:
    with FakeWebFeed(Disk()) as feed:
        pass
    ran = run(["push", NAME, "a", "--url", feed.url], env)
    assert (ran.returncode, ran.stdout) == (3, "")
    assert ran.stderr.startswith(f"superfluid: no server at {feed.url}: ")


def test_something_that_is_no_such_server(env: Env) -> None:
    import http.server
    import threading

    with http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        ran = run(["push", NAME, "a", "--url", f"http://127.0.0.1:{server.server_address[1]}"], env)
        server.shutdown()
    assert ran.returncode == 1
    assert "answered 501" in ran.stderr or "WebSocket" in ran.stderr


def test_acknowledgements_as_json(env: Env) -> None:
    with FakeWebFeed(Disk()) as feed:
        ran = run(["push", NAME, "a", "--url", feed.url, "--json"], env)
    assert json.loads(ran.stdout)["total_pushed"] == 1


@pytest.mark.parametrize(
    ("url", "authority", "path"),
    [
        ("http://h", "h:80", "/v1/sessions/a"),
        ("https://h/below/", "h:443", "/below/v1/sessions/a"),
        ("ws://[::1]:9", "[::1]:9", "/v1/sessions/a"),
    ],
)
def test_addresses(url: str, authority: str, path: str) -> None:
    server = Server(url, None)
    assert (server.authority, server.session("a")) == (authority, path)
