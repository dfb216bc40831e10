"""Each command: what it asks the daemon, what it prints, how it ends."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from superfluid.protocol import records, requests, responses
from superfluid.protocol.codes import PurgeMode
from tests.cli.conftest import Ran
from tests.cli.fake_server import (
    PARAMS,
    FakeServer,
    HangUp,
    committed,
    created,
    done,
    event,
    inspection,
    sessions,
    summary,
    text,
)

Cli = Callable[..., Ran]
# --- new ----------------------------------------------------------------------------------------------------------


def test_new_prints_the_id_alone(cli: Cli, server: FakeServer) -> None:
    server.expect(lambda it: isinstance(it, requests.Create), created(12))
    assert cli("session", "new") == Ran(0, "12\n", "")
    (request,) = server.seen
    assert request.parent is None
    assert (round(request.params.temperature, 4), round(request.params.top_p, 4)) == (0.7, 0.95)
    assert (request.params.min_p, request.params.top_k) == (0.0, 0)
    assert 0 <= request.params.seed < 1 << 63


def test_new_draws_a_fresh_seed(cli: Cli, server: FakeServer) -> None:
    for id_ in (1, 2):
        server.expect(lambda it: isinstance(it, requests.Create), created(id_))
        cli("session", "new")
    assert server.seen[0].params.seed != server.seen[1].params.seed


def test_new_takes_every_parameter(cli: Cli, server: FakeServer) -> None:
    server.expect(requests.Create(None, PARAMS), created(1))
    options = ["--temperature", "0.5", "--top-p", "0.25", "--min-p", "0", "--top-k", "3", "--seed", "42"]
    assert cli("session", "new", *options).code == 0


def test_new_greedy(cli: Cli, server: FakeServer) -> None:
    server.expect(lambda it: it.params.temperature == 0.0, created(1))
    assert cli("session", "new", "--greedy").code == 0
    assert cli("session", "new", "--greedy", "--temperature", "1").code == 2


def test_new_with_system_and_title(cli: Cli, server: FakeServer) -> None:
    server.expect(lambda it: isinstance(it, requests.Create), created(3))
    server.expect(requests.AppendMessage(3, 0, "Be brief."), committed(1, 0))
    server.expect(requests.SetMeta(3, 0, "notes", None), responses.Meta(1))
    assert cli("session", "new", "--system", "Be brief.", "--title=notes") == Ran(0, "3\n", "")


def test_new_leaves_nothing_of_what_is_refused(cli: Cli, server: FakeServer) -> None:
    server.expect(lambda it: isinstance(it, requests.Create), created(3))
    server.expect(requests.AppendMessage(3, 0, "x"), responses.Err("protocol: not that"))
    server.expect(requests.Purge(3, 0, PurgeMode.REROOT), responses.Purged((3,)))
    assert cli("session", "new", "--system", "x") == Ran(1, "", "superfluid: protocol: not that\n")


def test_new_says_which_session_is_unfinished(cli: Cli, server: FakeServer) -> None:
    server.expect(lambda it: isinstance(it, requests.Create), created(3))
    server.expect(requests.AppendMessage(3, 0, "x"), responses.Err("io: disk full"))
    server.expect(requests.Purge(3, 0, PurgeMode.REROOT), responses.Err("io: disk full"))
    said = (
        "superfluid: session 3 was made, but not all of it: io: disk full; `superfluid session purge 3` removes it\n"
    )
    assert cli("session", "new", "--system", "x") == Ran(1, "", said)


# --- list, tree, show, read ---------------------------------------------------------------------------------------


def test_list_in_a_pipe(cli: Cli, server: FakeServer) -> None:
    rows = sessions(summary(1, title="a\tb\n\x1b[31m"), summary(5, parent=1, fork_at=3, open_tool_calls=2))
    server.expect(requests.Sessions(False), rows)
    assert cli("session", "list") == Ran(
        0, "1\t\ta\\tb\\n\\e[31m\t4\t20\t\t\n5\t1@3\t\t4\t20\t2 open tool calls\tfeed\n", ""
    )


def test_list_all_as_json(cli: Cli, server: FakeServer) -> None:
    server.expect(requests.Sessions(True), sessions(summary(1, archived=True)))
    ran = cli("session", "list", "--all", "--json")
    assert json.loads(ran.out)["archived"] is True
    assert json.loads(ran.out)["name"] is None
    assert len(ran.out.splitlines()) == 1


def test_list_of_nothing(cli: Cli, server: FakeServer) -> None:
    server.expect(requests.Sessions(False), sessions())
    assert cli("session", "list") == Ran(0, "", "")


def test_tree(cli: Cli, server: FakeServer) -> None:
    for _ in range(2):
        server.expect(requests.Tree(), responses.Tree(((1, None, 0), (2, 1, 3))))
        server.expect(requests.Sessions(True), sessions(summary(1, title="t"), summary(2)))
    assert cli("session", "tree") == Ran(0, "1\t\t0\tt\n2\t1\t3\t\n", "")
    assert cli("session", "tree", "--json").out == "[1,null,0]\n[2,1,3]\n"


@pytest.mark.parametrize("name", ["show", "inspect"])
def test_show(cli: Cli, server: FakeServer, name: str) -> None:
    server.expect(requests.Inspect(4), responses.Inspection(inspection()))
    ran = cli("session", name, "4")
    lines = ran.out.splitlines()
    assert lines[0] == "session\t4"
    assert "title\tt\\e" in lines
    assert "parent\t2 at event 3" in lines
    assert "tier\tparked, 20 tokens" in lines
    assert "tool call 6\tf {}" in lines
    assert "behavior_fingerprint\t00000000000000ff" in lines
    assert lines[-1] == "1\t1700000000001\tMessage\tuser, 2 tokens\ta\\nb"
    assert "\x1b" not in ran.out


@pytest.mark.parametrize("tier", [responses.Cold(), responses.Resident()])
def test_show_leaves_out_what_is_not_there(cli: Cli, server: FakeServer, tier: responses.Tier) -> None:
    bare = inspection(summary=summary(4), behavior_fingerprint=None, store_id=None, open_tool_calls=(), tier=tier)
    server.expect(requests.Inspect(4), responses.Inspection(bare))
    names = [line.split("\t")[0] for line in cli("session", "show", "4").out.splitlines()]
    assert not {"title", "parent", "store_id", "behavior_fingerprint", "pinned"} & set(names)


def test_show_json_is_the_inspection(cli: Cli, server: FakeServer) -> None:
    server.expect(requests.Inspect(4), responses.Inspection(inspection()))
    shown = cli("session", "show", "4", "--json").out
    assert shown.startswith("{\n  ")
    data = json.loads(shown)
    assert data["summary"]["title"] == "t\x1b"
    assert data["events"][1]["body"] == {"Message": {"role": 1, "text": "a\nb", "span": [1, 2]}}


def test_read(cli: Cli, server: FakeServer) -> None:
    log = (
        event(2, records.Generated((5,), "x\ty", 1, 2)),
        event(3, records.ToolUse("f", '{"a":1}')),
        event(4, records.EpochBump()),
        event(5, records.Rebased(1, 2, PARAMS, (records.Drop(1, 2),))),
        event(6, records.Purged(1, PurgeMode.REROOT)),
        event(7, records.Rerooted(1, ((0, records.Created(None, PARAMS)),))),
        event(8, records.GenerationFingerprint(16)),
        event(9, records.MetaUpdated(1, "t\n", None)),
        event(10, records.Message(9, "odd", ())),
        event(11, records.Ingested(3, (1, 2), (records.Entry("a", (4, 5)), records.Entry("b", (6,))), 1, 0)),
        event(12, records.FlashAdded(1, "Which?", 16)),
        event(13, records.FlashAnswered(1, "That.", 3, 0.25)),
        event(14, records.Erased((records.Entry("c", (7,)),), (2, 0), 4, (), 1, 0)),
    )
    server.expect(requests.Read(1, 2), responses.Events(log))
    rows = [line.split("\t") for line in cli("session", "read", "1", "--cursor", "2").out.splitlines()]
    assert rows[0] == ["2", "1700000000002", "Generated", "1 token, reasoning, cut at the token limit", "x\\ty"]
    assert rows[1] == ["3", "1700000000003", "ToolUse", "name f", '{"a":1}']
    assert rows[2] == ["4", "1700000000004", "EpochBump", "", ""]
    details = [row[3] for row in rows[3:]]
    assert details[0].startswith("parent 1, fork_at 2, temperature 0.5")
    assert details[0].endswith(", 1 edit")
    assert details[1:] == [
        "generation 1, reroot",
        "purged_parent 1, 1 event",
        "0000000000000010",
        "version 1, title t\\n",
        "9, 0 tokens",
        "version 3, 2 tokens of framing, 2 entries, 3 tokens, evicted 1, dropped 0",
        "id 1, max_tokens 16",
        "id 1, data_version 3, confidence 0.250",
        "1 entry, 1 token, 2 entries of 2 tokens erased, version 4, 0 tokens of framing, evicted 1, dropped 0",
    ]
    assert [row[4] for row in rows[-4:]] == ["a\\nb", "Which?", "That.", "c"]


def test_read_json_is_a_line_an_event(cli: Cli, server: FakeServer) -> None:
    server.expect(
        requests.Read(1, 0), responses.Events((event(0, records.EpochBump()), event(1, records.EpochBump())))
    )
    lines = cli("session", "read", "1", "--json").out.splitlines()
    assert [json.loads(line)["event_id"] for line in lines] == [0, 1]
    assert json.loads(lines[0])["body"] == "EpochBump"


# --- say, generate, cancel, append --------------------------------------------------------------------------------


def test_say_streams_the_text(cli: Cli, server: FakeServer) -> None:
    server.expect(requests.AppendMessage(1, 1, "Hi there"), committed(1))
    server.expect(
        requests.Generate(1, 1024),
        text(3, "thinking", channel=1),
        text(4, "Hel"),
        text(5, "lo\x1b[0m", finish=1),
        done(),
    )
    assert cli("session", "say", "1", "Hi there") == Ran(0, "Hello\x1b[0m\n", "")


def test_say_adds_no_second_newline(cli: Cli, server: FakeServer) -> None:
    server.expect(requests.AppendMessage(1, 1, "x"), committed(1))
    server.expect(requests.Generate(1, 7), text(3, "a\n"), text(4, "", finish=1), done())
    assert cli("session", "say", "1", "x", "--max-tokens", "7").out == "a\n"


def test_say_shows_tool_calls_on_stderr(cli: Cli, server: FakeServer) -> None:
    server.expect(requests.AppendMessage(1, 1, "x"), committed(1))
    calls = (
        responses.Delta(event(4, records.ToolUse("rain\x1b", '{"in":"Paris"}'))),
        responses.Delta(event(5, records.ToolParseFailure("{oops"))),
    )
    server.expect(requests.Generate(1, 1024), text(3, "Let me see."), *calls, done())
    assert cli("session", "say", "1", "x") == Ran(
        0,
        "Let me see.\n",
        'tool call 4: rain\\e {"in":"Paris"}\na tool call that does not parse: {oops\n',
    )


@pytest.mark.parametrize("arguments", [(), ("-",)])
def test_say_reads_stdin(cli: Cli, server: FakeServer, arguments: tuple[str, ...]) -> None:
    server.expect(requests.AppendMessage(1, 1, "two\nlines"), committed(1))
    server.expect(requests.Generate(1, 1024), done())
    assert cli("session", "say", "1", *arguments, stdin=b"two\nlines\n").code == 0


def test_say_reads_a_file(cli: Cli, server: FakeServer, folder: Path) -> None:
    (folder / "m").write_text("from a file\r\n")
    server.expect(requests.AppendMessage(1, 1, "from a file"), committed(1))
    server.expect(requests.Generate(1, 1024), done())
    assert cli("session", "say", "1", "--file", str(folder / "m")).code == 0


@pytest.mark.parametrize(
    ("arguments", "stdin", "message"),
    [
        (("",), b"", "the text is empty"),
        (("  \n",), b"", "the text is empty"),
        ((), b"\n", "the text is empty"),
        ((), b"\xff\xfe", "stdin is not UTF-8: byte 0 is 0xff"),
        (("\udcff",), b"", "TEXT is not UTF-8"),
        (("x", "--file", "y"), b"", "both TEXT and --file"),
        (("--file", "/nowhere/m"), b"", "--file /nowhere/m: No such file"),
        (("--file", "/"), b"", "--file /: Is a directory"),
    ],
)
def test_say_refuses_bad_text_before_it_asks(
    cli: Cli, server: FakeServer, arguments: tuple[str, ...], stdin: bytes, message: str
) -> None:
    ran = cli("session", "say", "1", *arguments, stdin=stdin)
    assert ran.code == 2
    assert ran.err.startswith(f"superfluid: {message}")
    assert server.seen == []


def test_a_generation_that_fails_keeps_what_came(cli: Cli, server: FakeServer) -> None:
    server.expect(requests.Generate(1, 1024), text(3, "Hal"), responses.Err("generation failed: worker died"))
    assert cli("session", "generate", "1") == Ran(1, "Hal\n", "superfluid: generation failed: worker died\n")


def test_a_daemon_that_dies_in_mid_reply(cli: Cli, server: FakeServer) -> None:
    server.expect(requests.Generate(1, 1024), text(3, "Hal"), HangUp())
    ran = cli("session", "generate", "1")
    assert (ran.code, ran.out) == (1, "Hal\n")
    assert "closed the connection before its reply was complete" in ran.err


def test_cancel(cli: Cli, server: FakeServer) -> None:
    server.expect(requests.Cancel(1), responses.Cancelling())
    server.expect(requests.Cancel(1), responses.Err("session 1 has no generation in flight"))
    assert cli("session", "cancel", "1") == Ran(0, "", "")
    assert cli("session", "cancel", "1") == Ran(1, "", "superfluid: session 1 has no generation in flight\n")


@pytest.mark.parametrize(
    ("arguments", "stdin", "request_"),
    [
        (("raw ",), b"", requests.Append(1, "raw ", ())),
        ((), b"kept\n", requests.Append(1, "kept\n", ())),
        (("--tokens", "1,2", "--tokens", "3"), b"", requests.Append(1, None, (1, 2, 3))),
        (("--role", "assistant", "Sure."), b"", requests.AppendMessage(1, 2, "Sure.")),
        (("--role", "system"), b"Be brief.\n", requests.AppendMessage(1, 0, "Be brief.")),
    ],
)
def test_append(
    cli: Cli, server: FakeServer, arguments: tuple[str, ...], stdin: bytes, request_: requests.Request
) -> None:
    server.expect(request_, committed(6))
    assert cli("session", "append", "1", *arguments, stdin=stdin) == Ran(0, "6\n", "")


# --- watch --------------------------------------------------------------------------------------------------------


def test_watch_goes_on_where_it_lagged(cli: Cli, server: FakeServer) -> None:
    first = responses.SubEvent(1, event(3, records.EpochBump()))
    second = responses.SubEvent(2, event(4, records.Message(1, "x", ())))
    server.expect(requests.Subscribe(1, 3, False), responses.Subscribed(1), first, responses.SubEnded(1, "lagged"))
    server.expect(requests.Subscribe(1, 4, False), responses.Subscribed(2), second, responses.SubEnded(2, "purged"))
    ran = cli("session", "watch", "1", "--cursor", "3")
    assert [line.split("\t")[0] for line in ran.out.splitlines()] == ["3", "4"]
    assert (ran.code, ran.err) == (0, "session 1: purged\n")


def test_watch_provisional(cli: Cli, server: FakeServer) -> None:
    for _ in range(2):
        ahead = responses.SubProvisional(1, 0, "a\nb")
        ended = responses.SubEnded(1, "publisher closed")
        server.expect(requests.Subscribe(1, 0, True), responses.Subscribed(1), ahead, ended)
    said = cli("session", "watch", "1", "--provisional")
    assert said == Ran(0, "~\ttext\ta\\nb\n", "session 1: the daemon has stopped\n")
    shown = cli("session", "watch", "1", "--provisional", "--json").out
    assert json.loads(shown) == {"provisional": {"channel": 0, "text": "a\nb"}}


# --- chat ---------------------------------------------------------------------------------------------------------


def test_chat_makes_a_session(cli: Cli, server: FakeServer) -> None:
    server.expect(lambda it: isinstance(it, requests.Create), created(5))
    server.expect(requests.AppendMessage(5, 0, "Be brief."), committed(1, 0))
    for line, reply in (("one", "1"), ("two", "2")):
        server.expect(requests.AppendMessage(5, 1, line), committed(2))
        server.expect(requests.Generate(5, 1024), text(3, reply), done())
    ran = cli("session", "chat", "--system", "Be brief.", stdin=b"one\n\ntwo\n/quit\nthree\n")
    assert (ran.code, ran.out) == (0, "1\n2\n")
    assert ran.err.startswith("session 5; ")


def test_chat_survives_a_refusal(cli: Cli, server: FakeServer) -> None:
    server.expect(requests.Sessions(True), sessions(summary(5)))
    server.expect(requests.AppendMessage(5, 1, "one"), responses.Err("session 5 is generating; wait or cancel"))
    server.expect(requests.AppendMessage(5, 1, "two"), committed(2))
    server.expect(requests.Generate(5, 1024), text(3, "2"), done())
    ran = cli("session", "chat", "5", stdin=b"one\ntwo")
    assert (ran.code, ran.out) == (0, "2\n")
    assert "superfluid: session 5 is generating" in ran.err


def test_chat_ends_with_its_session(cli: Cli, server: FakeServer) -> None:
    server.expect(requests.Sessions(True), sessions(summary(5)))
    server.expect(requests.AppendMessage(5, 1, "one"), responses.Err("session 5 was purged"))
    assert cli("session", "chat", "5", stdin=b"one\ntwo").code == 4
    assert cli("session", "chat", "5", "--system", "x").code == 2


def test_chat_ends_with_its_daemon_and_says_how_to_go_on(cli: Cli, server: FakeServer) -> None:
    server.expect(requests.Sessions(True), sessions(summary(5)))
    server.expect(requests.AppendMessage(5, 1, "one"), committed(2))
    server.expect(requests.Generate(5, 1024), text(3, "half"), HangUp())
    ran = cli("session", "chat", "5", stdin=b"one\ntwo")
    assert (ran.code, ran.out) == (1, "half\n")
    assert "`superfluid session chat 5` goes on with it once the daemon is back" in ran.err
    assert "closed the connection before its reply was complete" in ran.err


# --- sessions that are not there ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "request_"),
    [
        (("read", "9"), requests.Read(9, 0)),
        (("say", "9", "x"), requests.AppendMessage(9, 1, "x")),
        (("generate", "9"), requests.Generate(9, 1024)),
        (("show", "9"), requests.Inspect(9)),
        (("trim", "9", "--to", "1"), requests.Trim(9, 1)),
        (("watch", "9"), requests.Subscribe(9, 0, False)),
    ],
)
def test_an_unknown_session(
    cli: Cli, server: FakeServer, arguments: tuple[str, ...], request_: requests.Request
) -> None:
    server.expect(request_, responses.Err("unknown session 9"))
    assert cli("session", *arguments) == Ran(4, "", "superfluid: unknown session 9\n")


# --- qos, background-rate -----------------------------------------------------------------------------------------


def test_qos(cli: Cli, server: FakeServer) -> None:
    server.expect(requests.SetQos(1, 3, False), responses.Committed(event(4, records.QosSet(3, False))))
    assert cli("session", "qos", "1", "Background-Agent") == Ran(0, "", "")
    server.expect(requests.SetQos(1, 0, True), responses.Committed(event(5, records.QosSet(0, True))))
    assert cli("session", "qos", "1", "interactive", "--batch-invariant").code == 0


def test_qos_in_the_log(cli: Cli, server: FakeServer) -> None:
    server.expect(requests.Read(1, 0), responses.Events((event(4, records.QosSet(3, True)),)))
    assert cli("session", "read", "1").out == "4\t1700000000004\tQosSet\tbackground, batch_invariant yes\t\n"


def test_background_rate(cli: Cli, server: FakeServer) -> None:
    server.expect(requests.SetBackgroundRate(4), responses.Ack())
    assert cli("session", "background-rate", "4") == Ran(0, "", "")
