import socket
from pathlib import Path

import pytest

from superfluid.protocol import requests, responses
from superfluid_cli.client import Client, cancel
from superfluid_cli.exits import ConnectionBroken, Exit, NoDaemon, ServerSaid, UsageError
from tests.cli.fake_server import FakeServer, HangUp, Raw, done, event, summary, text


def test_a_reply(server: FakeServer) -> None:
    server.expect(requests.List(), responses.Sessions((1, 2)))
    with Client(server.path) as client:
        assert client.call(requests.List()) == responses.Sessions((1, 2))


def test_a_refusal(server: FakeServer) -> None:
    server.expect(requests.Cancel(1), responses.Err("session 1 has no generation in flight"))
    server.expect(requests.Cancel(2), responses.Err("unknown session 2"))
    server.expect(requests.Cancel(3), responses.Err("session 3 was purged"))
    with Client(server.path) as client:
        for session, code in ((1, Exit.FAILURE), (2, Exit.NO_SESSION), (3, Exit.NO_SESSION)):
            with pytest.raises(ServerSaid) as refusal:
                client.call(requests.Cancel(session))
            assert refusal.value.code == code


def test_a_generation_ends_with_its_summary(server: FakeServer) -> None:
    server.expect(requests.Generate(1, 9), text(3, "a"), text(4, "b", finish=1), done())
    server.expect(requests.List(), responses.Sessions(()))
    with Client(server.path) as client:
        assert list(client.generate(1, 9)) == [text(3, "a"), text(4, "b", finish=1), done()]
        assert client.call(requests.List()) == responses.Sessions(())


def test_a_subscription_ends_with_its_reason(server: FakeServer) -> None:
    event_ = responses.SubEvent(7, event(0, text(0, "x").event.body))
    server.expect(requests.Subscribe(1, 0, False), responses.Subscribed(7), event_, responses.SubEnded(7, "purged"))
    with Client(server.path) as client:
        assert list(client.subscribe(1, 0, False)) == [event_, responses.SubEnded(7, "purged")]


@pytest.mark.parametrize("actions", [(HangUp(),), (Raw(b"\x05\x00\x00\x00\x0d"), HangUp())])
def test_the_daemon_leaves_in_the_middle(server: FakeServer, actions: tuple[Raw | HangUp, ...]) -> None:
    server.expect(requests.List(), *actions)
    with Client(server.path) as client, pytest.raises(ConnectionBroken, match="closed the connection"):
        client.call(requests.List())


@pytest.mark.parametrize("data", [b"\x01\x00\x00\x00\x7f", b"\xff\xff\xff\xff", b"\x00\x00\x00\x00"])
def test_the_daemon_talks_nonsense(server: FakeServer, data: bytes) -> None:
    server.expect(requests.List(), Raw(data))
    with Client(server.path) as client, pytest.raises(ConnectionBroken, match="no reply"):
        client.call(requests.List())


def test_a_reply_of_another_kind(server: FakeServer) -> None:
    server.expect(requests.List(), responses.Ack())
    with Client(server.path) as client, pytest.raises(ConnectionBroken, match="Ack"):
        client.ask(requests.List(), responses.Sessions)


def test_nobody_there(folder: Path) -> None:
    with pytest.raises(NoDaemon, match="superfluid serve"):
        Client(folder / "s")


def test_a_socket_left_behind(folder: Path) -> None:
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(folder / "s"))
    left.close()
    with pytest.raises(NoDaemon, match="no daemon at"):
        Client(folder / "s")


def test_something_that_is_no_socket(folder: Path) -> None:
    (folder / "s").write_text("")
    (folder / "d").mkdir()
    for name in ("s", "d", "s/below"):
        with pytest.raises(NoDaemon, match="superfluid serve"):
            Client(folder / name)


def test_a_path_too_long(folder: Path) -> None:
    with pytest.raises(UsageError, match="too long"):
        Client(folder / ("x" * 120))


def test_a_daemon_that_says_nothing(server: FakeServer) -> None:
    server.expect(requests.List())
    with Client(server.path, timeout=0.05) as client, pytest.raises(ConnectionBroken, match="does not answer"):
        client.call(requests.List())


def test_cancel_is_not_an_error(server: FakeServer, folder: Path) -> None:
    server.expect(requests.Cancel(1), responses.Cancelling())
    server.expect(requests.Cancel(2), responses.Err("session 2 has no generation in flight"))
    assert cancel(server.path, 1)
    assert not cancel(server.path, 2)
    assert not cancel(folder / "elsewhere", 1)


def test_the_summary_of_a_session(server: FakeServer) -> None:
    server.expect(requests.Sessions(True), responses.SessionList((summary(1), summary(2, events=7))))
    with Client(server.path) as client:
        assert client.summary(2).events == 7


def test_a_purged_session_is_refused_in_the_daemons_words(server: FakeServer) -> None:
    server.expect(requests.Sessions(True), responses.SessionList(()))
    server.expect(requests.Read(2, (1 << 64) - 1), responses.Err("session 2 was purged"))
    with Client(server.path) as client, pytest.raises(ServerSaid, match="was purged"):
        client.summary(2)
