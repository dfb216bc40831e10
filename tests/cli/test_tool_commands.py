"""The commands about tool calls, permissions, blocks and pins: what they ask, print, and refuse."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from superfluid.protocol import records, requests, responses
from tests.cli.conftest import Ran
from tests.cli.fake_server import FakeServer, event

Cli = Callable[..., Ran]


def committed(number: int, body: Any) -> responses.Committed:
    return responses.Committed(event(number, body))


def test_tools(cli: Cli, server: FakeServer) -> None:
    calls = ((4, "rain\x1b", '{"in":"Paris"}'), (6, "f", "{}"))
    for _ in range(2):
        server.expect(requests.OpenToolCalls(1), responses.ToolCalls(calls))
    assert cli("session", "tools", "1") == Ran(0, '4\train\\e\t{"in":"Paris"}\n6\tf\t{}\n', "")
    first, second = map(json.loads, cli("session", "tools", "1", "--json").out.splitlines())
    assert first == {"call_id": 4, "name": "rain\x1b", "arguments": '{"in":"Paris"}'}
    assert second["call_id"] == 6


def test_ledger(cli: Cli, server: FakeServer) -> None:
    entries = (
        (4, responses.LedgerEntry("f", '{"a":1}', 0, False, None, 0)),
        (6, responses.LedgerEntry("g", "{}", 6, True, None, 2)),
        (8, responses.LedgerEntry("h", "{}", 1, True, 1_700_000_000_000, 0)),
        (9, responses.LedgerEntry("h", "{}", 77, False, None, 0)),
    )
    for _ in range(2):
        server.expect(requests.Ledger(1), responses.Ledger(entries))
    rows = [line.split("\t") for line in cli("session", "ledger", "1").out.splitlines()]
    assert rows[0] == ["4", "f", "open", "", "", '{"a":1}']
    assert rows[1] == ["6", "g", "cancelled with late effect, cancel requested", "", "2", "{}"]
    assert (rows[2][2], rows[2][3][:2]) == ("cancel requested", "20")
    assert rows[3][2] == "77"
    first = json.loads(cli("session", "ledger", "1", "--json").out.splitlines()[0])
    assert first["call_id"] == 4
    assert first["state"] == 0
    assert first["lease_deadline_unix_ms"] is None


def test_result(cli: Cli, server: FakeServer, folder: Path) -> None:
    (folder / "r").write_text("dry\n")
    for _ in range(3):
        server.expect(requests.AppendToolResult(1, 4, "dry"), committed(5, records.ToolResult(4, "dry", (1,))))
    assert cli("session", "result", "1", "4", "dry") == Ran(0, "5\n", "")
    assert cli("session", "result", "1", "4", stdin=b"dry\n").out == "5\n"
    assert cli("session", "result", "1", "4", "--file", str(folder / "r")).out == "5\n"


@pytest.mark.parametrize(("word", "code"), [("failed", 1), ("Cancelled", 2)])
def test_outcome(cli: Cli, server: FakeServer, word: str, code: int) -> None:
    server.expect(requests.AppendToolOutcome(1, 4, code, ""), committed(5, records.ToolOutcome(4, code, "")))
    assert cli("session", "outcome", "1", "4", word) == Ran(0, "5\n", "")
    server.expect(requests.AppendToolOutcome(1, 4, code, "no net"), committed(5, records.ToolOutcome(4, code, "")))
    assert cli("session", "outcome", "1", "4", word, "no net").code == 0


def test_cancel_call(cli: Cli, server: FakeServer) -> None:
    server.expect(requests.RequestToolCancel(1, 4), committed(5, records.ToolCancelRequested(4)))
    assert cli("session", "cancel-call", "1", "4") == Ran(0, "5\n", "")


def test_permissions(cli: Cli, server: FakeServer) -> None:
    server.expect(requests.RequestPermission(1, 4, "May I?"), committed(5, records.PermissionRequest(4, "May I?")))
    assert cli("session", "ask-permission", "1", "May I?", "--call", "4") == Ran(0, "5\n", "")
    server.expect(requests.RequestPermission(1, 0, "May I?"), committed(5, records.PermissionRequest(0, "May I?")))
    assert cli("session", "ask-permission", "1", stdin=b"May I?\n").out == "5\n"
    server.expect(requests.RespondPermission(1, 5, True), committed(6, records.PermissionResponse(5, True)))
    assert cli("session", "permit", "1", "5") == Ran(0, "6\n", "")
    server.expect(requests.RespondPermission(1, 5, False), committed(6, records.PermissionResponse(5, False)))
    assert cli("session", "permit", "1", "5", "--deny").code == 0


def test_block(cli: Cli, server: FakeServer) -> None:
    body = records.Block(1, 1, "+x\n", (1,), 2)
    server.expect(requests.AppendBlock(1, 1, 1, "+x\n"), committed(5, body))
    assert cli("session", "block", "1", "file-diff", stdin=b"+x\n") == Ran(0, "5\n", "")
    server.expect(requests.AppendBlock(1, 0, 6, "{}"), committed(5, body))
    assert cli("session", "block", "1", "Workspace_Ref", "{}", "--role", "system").code == 0


def test_pin(cli: Cli, server: FakeServer) -> None:
    for text, ms in (("90", 90_000), ("10m", 600_000), ("0.5s", 500)):
        server.expect(requests.Pin(1, ms), responses.Pinned(1_700_000_000_000))
        assert cli("session", "pin", "1", text) == Ran(0, "1700000000000\n", "")
    server.expect(requests.Pin(1, 0), responses.Pinned(0))
    assert cli("session", "unpin", "1") == Ran(0, "", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("result", "1", "x", "dry"), "a call id"),
        (("result", "1", "4", ""), "the text is empty"),
        (("outcome", "1", "4", "done"), "failed or cancelled"),
        (("block", "1", "image", "x"), "file-diff"),
        (("block", "1", "artifact", "x", "--role", "tool"), "user, system or assistant"),
        (("pin", "1", "0"), "at least a millisecond"),
        (("pin", "1", "later"), "a time"),
        (("permit", "1"), "missing argument"),
    ],
)
def test_bad_words(cli: Cli, server: FakeServer, arguments: tuple[str, ...], message: str) -> None:
    ran = cli("session", *arguments)
    assert ran.code == 2
    assert message in ran.err
    assert server.seen == []


@pytest.mark.parametrize(
    ("arguments", "request_"),
    [
        (("tools", "9"), requests.OpenToolCalls(9)),
        (("ledger", "9"), requests.Ledger(9)),
        (("result", "9", "4", "x"), requests.AppendToolResult(9, 4, "x")),
        (("outcome", "9", "4", "failed"), requests.AppendToolOutcome(9, 4, 1, "")),
        (("cancel-call", "9", "4"), requests.RequestToolCancel(9, 4)),
        (("ask-permission", "9", "x"), requests.RequestPermission(9, 0, "x")),
        (("permit", "9", "4"), requests.RespondPermission(9, 4, True)),
        (("block", "9", "artifact", "x"), requests.AppendBlock(9, 1, 2, "x")),
        (("pin", "9", "1"), requests.Pin(9, 1000)),
        (("unpin", "9"), requests.Pin(9, 0)),
    ],
)
def test_an_unknown_session(
    cli: Cli, server: FakeServer, arguments: tuple[str, ...], request_: requests.Request
) -> None:
    server.expect(request_, responses.Err("unknown session 9"))
    assert cli("session", *arguments) == Ran(4, "", "superfluid: unknown session 9\n")


def test_a_new_session_with_tools(cli: Cli, server: FakeServer, folder: Path) -> None:
    (folder / "one.json").write_text('{"name": "rain"}')
    (folder / "two.json").write_text('[{"name": "Schnee", "x": "ü"}, {"name": "fog"}]')
    declared = ('{"name": "rain"}', '{"name": "Schnee", "x": "ü"}', '{"name": "fog"}')
    files = ("--tool", str(folder / "one.json"), "--tool", str(folder / "two.json"))
    for system in (None, "Be brief."):
        server.expect(lambda it: isinstance(it, requests.Create), responses.Created(3))
        server.expect(requests.AppendSystem(3, system, declared), committed(1, records.Message(0, "", (1,))))
        words = () if system is None else ("--system", system)
        assert cli("session", "new", *files, *words) == Ran(0, "3\n", "")
    (folder / "bad.json").write_text("{")
    for bad, message in (
        (str(folder / "bad.json"), "is not JSON"),
        ("/nowhere/t", "--tool /nowhere/t: No such file"),
    ):
        ran = cli("session", "new", "--tool", bad)
        assert ran.code == 2
        assert message in ran.err
