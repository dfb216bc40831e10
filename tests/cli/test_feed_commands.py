"""`session ask`, `flash`, `feed`, `events`, `open`, `name`, and sessions given by name."""

import json
import signal
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from superfluid.protocol import records, requests, responses
from superfluid.protocol.codes import Finish
from superfluid.protocol.feed_responses import Connected, DataUpdated, FlashEntry, FlashReady
from tests.cli.conftest import Ran
from tests.cli.fake_feed import report
from tests.cli.fake_server import (
    DEADLINE,
    Endless,
    FakeServer,
    HangUp,
    committed,
    created,
    done,
    sessions,
    summary,
    text,
)
from tests.cli.processes import PROGRAM, OnTerminal, read_until

Cli = Callable[..., Ran]
Env = dict[str, str]


def resolves(server: FakeServer, name: str = "feed", session: int = 7) -> None:
    server.expect(requests.Resolve(name), responses.Resolved(session))


# --- names --------------------------------------------------------------------------------------------------------


def test_a_name_stands_for_its_session(cli: Cli, server: FakeServer) -> None:
    resolves(server)
    server.expect(requests.Sessions(True), sessions(summary(7, events=9)))
    server.expect(requests.Fork(7, 9, None), created(8))
    assert cli("session", "fork", "feed") == Ran(0, "8\n", "")


@pytest.mark.parametrize(
    ("arguments", "request_", "reply"),
    [
        (("read", "feed"), requests.Read(7, 0), responses.Events(())),
        (("trim", "feed", "--to", "3"), requests.Trim(7, 3), created(8)),
        (("append", "feed", "x"), requests.Append(7, "x", ()), committed(1)),
        (("cancel", "feed"), requests.Cancel(7), responses.Cancelling()),
        (("qos", "feed", "agent"), requests.SetQos(7, 2, False), committed(1)),
        (("generate", "feed"), requests.Generate(7, 1024), done()),
        (("tools", "feed"), requests.OpenToolCalls(7), responses.ToolCalls(())),
        (("pin", "feed", "10s"), requests.Pin(7, 10_000), responses.Pinned(1)),
        (("watch", "feed"), requests.Subscribe(7, 0, False), responses.Subscribed(1)),
    ],
)
def test_names_go_where_ids_go(
    cli: Cli, server: FakeServer, arguments: tuple[str, ...], request_: requests.Request, reply: responses.Response
) -> None:
    resolves(server)
    ended = (responses.SubEnded(1, "purged"),) if arguments[0] == "watch" else ()
    server.expect(request_, reply, *ended)
    assert cli("session", *arguments).code == 0


def test_chat_by_name(cli: Cli, server: FakeServer) -> None:
    resolves(server)
    server.expect(requests.Sessions(True), sessions(summary(7)))
    server.expect(requests.AppendMessage(7, 1, "Hi"), committed(1))
    server.expect(requests.Generate(7, 1024), text(2, "Ho"), done())
    ran = cli("session", "chat", "feed", stdin=b"Hi\n")
    assert (ran.code, ran.out) == (0, "Ho\n")
    assert "`superfluid session chat feed` goes on with it" in ran.err


def test_a_name_that_nobody_has(cli: Cli, server: FakeServer) -> None:
    server.expect(requests.Resolve("feed"), responses.Err("no session is named 'feed'"))
    assert cli("session", "read", "feed") == Ran(4, "", "superfluid: no session is named 'feed'\n")


def test_open(cli: Cli, server: FakeServer) -> None:
    server.expect(requests.Open(None, None, False), responses.Opened(3, "sess_x"))
    server.expect(requests.Open("feed", 512, True), responses.Opened(4, "feed"))
    assert cli("session", "open") == Ran(0, "3\tsess_x\n", "")
    assert cli("session", "open", "feed", "--window", "512", "--pre-decode") == Ran(0, "4\tfeed\n", "")


def test_name(cli: Cli, server: FakeServer) -> None:
    server.expect(requests.Name(3, "feed"), responses.Committed(records.Event(1, 1, 1, records.EpochBump())))
    assert cli("session", "name", "3", "feed") == Ran(0, "", "")


# --- ask ----------------------------------------------------------------------------------------------------------


def answer(**changes: Any) -> responses.Answer:
    values: dict[str, Any] = {
        "text": "AAPL.",
        "finish": 1,
        "data_version": 3,
        "prompt_tokens": 14,
        "completion_tokens": 3,
        "cached_tokens": 80,
        "flash_id": None,
        "confidence": None,
        "logit_gap": None,
    }
    return responses.Answer(**(values | changes))


def test_ask(cli: Cli, server: FakeServer) -> None:
    asked = requests.Ask(7, "Which moved?", None, None, (), (), 2.0)
    resolves(server)
    server.expect(asked, responses.AskPiece("AAP"), responses.AskPiece("L."), answer())
    assert cli("session", "ask", "feed", "Which moved?") == Ran(0, "AAPL.\n", "")


def test_ask_when_somebody_cancels(cli: Cli, server: FakeServer) -> None:
    asked = requests.Ask(7, "x", None, None, (), (), 2.0)
    server.expect(asked, responses.AskPiece("AAP"), answer(finish=Finish.CANCELLED))
    assert cli("session", "ask", "7", "x") == Ran(130, "AAP\n", "the answer was cancelled\n")


def test_ask_takes_every_option(cli: Cli, server: FakeServer) -> None:
    params = records.GenParams(0.5, 0.949999988079071, 0.0, 0, 9)
    server.expect(
        requests.Ask(7, "Up?", 8, params, (".", "\n"), ("yes", "no"), 0.5), answer(text="yes", logit_gap=0.75)
    )
    options = ["--max-tokens", "8", "--temperature", "0.5", "--seed", "9", "--stop", ".", "--stop", "\n"]
    options += ["--fast-answer", "yes", "--fast-answer", "no", "--gap-threshold", "0.5", "--json"]
    ran = cli("session", "ask", "7", *options, stdin=b"Up?\n")
    assert json.loads(ran.out) == {
        "text": "yes",
        "finish": 1,
        "data_version": 3,
        "prompt_tokens": 14,
        "completion_tokens": 3,
        "cached_tokens": 80,
        "flash_id": None,
        "confidence": None,
        "logit_gap": 0.75,
    }


def test_ask_prints_what_came_before_a_failure(cli: Cli, server: FakeServer) -> None:
    server.expect(
        lambda it: isinstance(it, requests.Ask), responses.AskPiece("AAP"), responses.Err("generation failed")
    )
    assert cli("session", "ask", "7", "x") == Ran(1, "AAP\n", "superfluid: generation failed\n")


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_hangs_up_on_an_answer(server: FakeServer, env: Env) -> None:
    server.expect(lambda it: isinstance(it, requests.Ask), Endless(responses.AskPiece("on ")))
    with subprocess.Popen(
        [*PROGRAM, "session", "ask", "7", "x"],
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        read_until(process.stdout, b"on")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=DEADLINE)
    assert (process.returncode, err) == (130, b"")
    assert server.hung_up.wait(DEADLINE)


@pytest.mark.parametrize(
    ("said", "summary_"),
    [
        (answer(), "3 tokens, 80 warm, end of turn, data version 3"),
        (answer(flash_id=2, confidence=1.5), "flash query 2, data version 3"),
        (answer(logit_gap=2.5), "decoded ahead, logit gap 2.50, data version 3"),
    ],
)
def test_ask_on_a_terminal(server: FakeServer, env: Env, said: responses.Answer, summary_: str) -> None:
    server.expect(lambda it: isinstance(it, requests.Ask), responses.AskPiece("A\x1b[31mB"), said)
    with OnTerminal(["session", "ask", "7", "x"], env) as shown:
        assert shown.finish() == 0
    assert "A[31mB\r\n" in shown.output
    assert summary_ in shown.output


# --- flash --------------------------------------------------------------------------------------------------------

FRESH = FlashEntry(1, "Which?", 16, 2, True, "AAPL\nup", 3, 0.8125, 1_700_000_000)
WAITING = FlashEntry(2, "Why?", 32, 2, False, None, None, None, None)
STALE = FlashEntry(3, "How?", 32, 2, False, "fast", 2, 1.0, 1_700_000_000)


def test_flash_add(cli: Cli, server: FakeServer) -> None:
    server.expect(requests.FlashAdd(7, "Which?", 16), responses.Flash(FRESH))
    server.expect(requests.FlashAdd(7, "Why?", 32), responses.Flash(WAITING))
    assert cli("session", "flash", "add", "7", "Which?", "--max-tokens", "16") == Ran(0, "1\n", "")
    assert json.loads(cli("session", "flash", "add", "7", "--json", stdin=b"Why?\n").out)["value"] is None
    assert (
        "expected a whole number from 1 to 256" in cli("session", "flash", "add", "7", "x", "--max-tokens", "257").err
    )


def test_flash_list(cli: Cli, server: FakeServer) -> None:
    for _ in range(2):
        server.expect(requests.FlashList(7), responses.Flashes((FRESH, WAITING, STALE), 3))
    assert cli("session", "flash", "list", "7").out == (
        "1\tWhich?\tAAPL\\nup\t3\t0.812\tfresh\n2\tWhy?\t\t\t\twaiting\n3\tHow?\tfast\t2\t1.000\tstale\n"
    )
    lines = cli("session", "flash", "list", "7", "--json").out.splitlines()
    assert [json.loads(line)["fresh"] for line in lines] == [True, False, False]


def test_flash_remove(cli: Cli, server: FakeServer) -> None:
    resolves(server)
    server.expect(requests.FlashRemove(7, 1), responses.FlashGone(1, 0))
    assert cli("session", "flash", "remove", "feed", "1") == Ran(0, "", "")


NEWS = (
    Connected(7, "feed", 3, 1),
    FlashReady(1, "Which?", "AAPL\x1b", 3, 0.5),
    DataUpdated(4, 99, 0),
    FlashReady(1, "Which?", "MSFT", 4, 0.25),
)


def publishes(server: FakeServer, *endings: str) -> None:
    for reason in endings:
        events = [responses.FeedEvent(5, news) for news in NEWS]
        server.expect(requests.FeedSubscribe(7), responses.Subscribed(5), *events, responses.SubEnded(5, reason))


def test_flash_watch(cli: Cli, server: FakeServer) -> None:
    publishes(server, "purged", "purged")
    assert cli("session", "flash", "watch", "7") == Ran(
        0, "1\t3\t0.500\tAAPL\\e\n1\t4\t0.250\tMSFT\n", "session 7: purged\n"
    )
    values = [json.loads(line)["value"] for line in cli("session", "flash", "watch", "7", "--json").out.splitlines()]
    assert values == ["AAPL\x1b", "MSFT"]


def test_a_reader_that_leaves_ends_the_command_though_nothing_happens(server: FakeServer, env: Env) -> None:
    said = responses.FeedEvent(5, NEWS[0])
    server.expect(requests.FeedSubscribe(7), responses.Subscribed(5), said)
    with subprocess.Popen(
        [*PROGRAM, "session", "events", "7"], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        read_until(process.stdout, b"connected")
        process.stdout.close()
        try:
            assert process.wait(DEADLINE) == 141
        finally:
            process.kill()


def test_events(cli: Cli, server: FakeServer) -> None:
    publishes(server, "purged", "purged")
    assert cli("session", "events", "7").out.splitlines() == [
        "connected\t3\t1",
        "flash_ready\t3\t1\t0.500\tAAPL\\e",
        "data_updated\t4\t99\t0",
        "flash_ready\t4\t1\t0.250\tMSFT",
    ]
    first, *_ = cli("session", "events", "7", "--json").out.splitlines()
    assert json.loads(first) == {"Connected": {"session": 7, "name": "feed", "data_version": 3, "flash_queries": 1}}


def test_a_reader_too_slow_for_the_queue_begins_again(cli: Cli, server: FakeServer) -> None:
    publishes(server, "lagged", "purged")
    ran = cli("session", "events", "7")
    assert (ran.code, len(ran.out.splitlines()), ran.err) == (0, 8, "session 7: purged\n")


def test_a_daemon_that_stops_ends_the_events(cli: Cli, server: FakeServer) -> None:
    server.expect(requests.FeedSubscribe(7), responses.Subscribed(5), HangUp())
    assert cli("session", "events", "7").code == 1


# --- feed ---------------------------------------------------------------------------------------------------------


def test_feed(cli: Cli, server: FakeServer) -> None:
    server.expect(requests.FeedState(7), responses.Feed(report()))
    facts = dict(line.split("\t") for line in cli("session", "feed", "7").out.splitlines())
    assert facts["name"] == "feed"
    assert facts["window"] == "512"
    assert facts["pending"] == "1 entry, 12 bytes"
    assert (facts["pushed"], facts["taken"], facts["evicted"], facts["dropped"]) == ("7", "6", "4", "0")
    assert facts["pre_decode"] == "yes, token 11, logit gap 0.500"


def test_feed_leaves_out_what_is_not_there(cli: Cli, server: FakeServer) -> None:
    bare = report(name=None, window=None, frozen_end=None, ready_token=None, ready_gap=None, pre_decode=False)
    server.expect(requests.FeedState(7), responses.Feed(bare))
    facts = dict(line.split("\t") for line in cli("session", "feed", "7").out.splitlines())
    assert not {"name", "window", "frozen_end", "pre_decode"} & facts.keys()


def test_feed_as_json(cli: Cli, server: FakeServer) -> None:
    server.expect(requests.FeedState(7), responses.Feed(report()))
    data = json.loads(cli("session", "feed", "7", "--json").out)
    assert (data["session"], data["window"], data["ready_gap"]) == (7, 512, 0.5)
