"""Commands that make sessions out of others, change what is said about them, or remove them."""

from collections.abc import Callable
from typing import Any

import pytest

from superfluid.protocol import records, requests, responses
from superfluid.protocol.codes import PurgeMode
from tests.cli.conftest import Ran
from tests.cli.fake_server import FakeServer, created, event, inspection, sessions, summary

Cli = Callable[..., Ran]
# --- branches -----------------------------------------------------------------------------------------------------


def test_fork_keeps_everything(cli: Cli, server: FakeServer) -> None:
    server.expect(requests.Sessions(True), sessions(summary(1, events=9)))
    server.expect(requests.Fork(1, 9, None), created(2))
    assert cli("session", "fork", "1") == Ran(0, "2\n", "")


def test_fork_at_with_a_seed(cli: Cli, server: FakeServer) -> None:
    server.expect(requests.Inspect(1), responses.Inspection(inspection()))
    server.expect(requests.Fork(1, 3, records.GenParams(0.5, 0.25, 0.0, 3, 7)), created(2))
    assert cli("session", "fork", "1", "--at", "3", "--seed", "7").out == "2\n"


def test_trim(cli: Cli, server: FakeServer) -> None:
    server.expect(requests.Trim(1, 3), created(2))
    assert cli("session", "trim", "1", "--to", "3") == Ran(0, "2\n", "")


def test_edit_replaces_a_message_and_what_follows(cli: Cli, server: FakeServer) -> None:
    rest = (event(2, records.Message(0, "old", (1,))), event(3, records.EpochBump()), event(4, records.EpochBump()))
    server.expect(requests.Read(1, 2), responses.Events(rest))
    server.expect(requests.Rebase(1, (records.Replace(2, 5, 0, "new"),), None), created(8))
    assert cli("session", "edit", "1", "2", "new") == Ran(0, "8\n", "")


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        ((), "session 1 has no event 2"),
        ((event(2, records.EpochBump()),), "event 2 of session 1 is no message but EpochBump"),
    ],
)
def test_edit_of_what_is_no_message(cli: Cli, server: FakeServer, rest: Any, message: str) -> None:
    server.expect(requests.Read(1, 2), responses.Events(rest))
    ran = cli("session", "edit", "1", "2", "new")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith(f"superfluid: {message}")


def test_rebase_sorts_its_edits(cli: Cli, server: FakeServer) -> None:
    edits = (records.Replace(1, 2, 1, "a:b"), records.Drop(3, 5))
    server.expect(requests.Rebase(1, edits, None), created(2))
    assert cli("session", "rebase", "1", "--drop", "3:5", "--replace", "1:2:user:a:b") == Ran(0, "2\n", "")


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--drop", "3"),
        ("--drop", "3:3"),
        ("--drop", "x:4"),
        ("--drop", "1:2:3"),
        ("--replace", "1:2:user"),
        ("--replace", "1:2:tool:x"),
        ("--replace", "1:2:user:"),
    ],
)
def test_rebase_refuses_bad_edits(cli: Cli, server: FakeServer, arguments: tuple[str, ...]) -> None:
    ran = cli("session", "rebase", "1", *arguments)
    assert ran.code == 2
    assert not arguments or ran.err.startswith((f"superfluid: {arguments[0]}: expected ", "superfluid: the text"))
    assert "unpack" not in ran.err


# --- names and ends -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "title", "archived"),
    [(("rename", "1", "new"), "new", None), (("archive", "1"), None, True), (("unarchive", "1"), None, False)],
)
def test_metadata(
    cli: Cli, server: FakeServer, arguments: tuple[str, ...], title: str | None, archived: bool | None
) -> None:
    server.expect(requests.Sessions(True), sessions(summary(1, meta_version=4)))
    server.expect(requests.SetMeta(1, 4, title, archived), responses.Meta(5))
    assert cli("session", *arguments) == Ran(0, "", "")


@pytest.mark.parametrize(
    ("flags", "mode"),
    [((), PurgeMode.REROOT), (("--reroot",), PurgeMode.REROOT), (("--cascade",), PurgeMode.CASCADE)],
)
def test_purge(cli: Cli, server: FakeServer, flags: tuple[str, ...], mode: PurgeMode) -> None:
    server.expect(requests.Sessions(True), sessions(summary(1, generation=2)))
    server.expect(requests.Purge(1, 2, mode), responses.Purged((3, 1)))
    assert cli("session", "purge", "1", "--yes", *flags) == Ran(0, "3\n1\n", "")


def test_purge_does_nothing_unasked(cli: Cli, server: FakeServer) -> None:
    ran = cli("session", "purge", "1", stdin=b"y\n")
    assert (ran.code, server.seen) == (2, [])
    assert "--yes" in ran.err
    assert cli("session", "purge", "1", "--yes", "--cascade", "--reroot").code == 2
