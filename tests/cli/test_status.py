"""`status` and `top`: what a daemon that works looks like, once and for as long as somebody watches."""

import json
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from superfluid.protocol import requests, responses
from superfluid_cli.status import period
from tests.cli.conftest import Ran
from tests.cli.fake_server import FakeServer, HangUp, Raw, report
from tests.cli.processes import PROGRAM, OnTerminal, run

Cli = Callable[..., Ran]
Env = dict[str, str]
SHOWN, HIDDEN = "\x1b[?1049l", "\x1b[?1049h"
OFTEN = ("top", "--interval", "0.02s")


def test_status_in_a_pipe(cli: Cli, server: FakeServer) -> None:
    server.expect(requests.Status(), report())
    ran = cli("status")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines() == [
        "model\ttiny\\e",
        "file\t/m/tiny.gguf",
        "devices\tGPU 0, all layers on the GPU",
        "threads\t2",
        "context\t4096 tokens a session",
        "daemon\tsuperfluid 0.1.0, pid 7, up 1 h 2 min",
        "sessions\t12",
        "lanes\t2 of 8 running",
        "queue\tinteractive 0, completion 1, agent 2, background 3",
        "kv sequences\t2 sessions, 220 tokens",
        "kv host memory\t5 sessions, 9000 tokens",
        "kv disk\t1 session, 1 token",
        "prefill\t512.0 tokens/s",
        "decode\t31.2 tokens/s",
        "respawns\t1",
        "ticks\t99",
        "lane\tsession 3, class agent, prompt 120, warm 100, remaining 0, drawn 17",
        "lane\tsession 12, class interactive, prompt 9, warm 0, remaining 9, drawn 0",
    ]


def test_status_as_json(cli: Cli, server: FakeServer) -> None:
    server.expect(requests.Status(), report(decode_rate=0.7))
    told = json.loads(cli("status", "--json").out)
    assert (told["model"], told["queue"], told["decode_rate"]) == ("tiny\x1b", [0, 1, 2, 3], 0.7)
    assert told["running"][0] == {
        "session": 3,
        "qos_class": 2,
        "prompt": 120,
        "warm": 100,
        "remaining": 0,
        "drawn": 17,
    }


@pytest.mark.parametrize("busy", [True, False])
def test_status_on_a_terminal(server: FakeServer, env: Env, busy: bool) -> None:
    server.expect(requests.Status(), report() if busy else report(running=()))
    with OnTerminal(["status"], env) as terminal:
        assert terminal.finish() == 0
    words = re.sub(r"\x1b\[[0-9;]*m", "", terminal.output)
    assert re.search(r"^model +tiny\\e *\r$", words, re.MULTILINE)
    assert bool(re.search(r"^ *session +class +prompt +warm +remaining +drawn", words, re.MULTILINE)) is busy
    assert bool(re.search(r"^ *3 +agent +120 +100 +0 +17", words, re.MULTILINE)) is busy


def test_status_of_a_daemon_that_does_not_know_it(cli: Cli, server: FakeServer) -> None:
    server.expect(requests.Status(), responses.Err("protocol: undecodable request"))
    assert cli("status") == Ran(1, "", "superfluid: protocol: undecodable request\n")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (59, "59 s"), (60, "1 min 0 s"), (3599, "59 min 59 s"), (3600, "1 h 0 min"), (200_000, "2 d 7 h")],
)
def test_a_period_in_words(seconds: int, words: str) -> None:
    assert period(seconds) == words


# --- top ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["q", "xQ", "\x1b", "\x04"])
def test_a_key_leaves_top(server: FakeServer, env: Env, key: str) -> None:
    server.always(requests.Status(), report())
    with OnTerminal(OFTEN, env) as terminal:
        terminal.read_until("q leaves")
        terminal.type("x\x1b[A")
        terminal.read_until("q leaves")  # other keys change nothing
        assert not terminal.echoes()
        terminal.type(key)
        assert terminal.finish() == 0
        assert terminal.echoes()
    assert "tiny\\e" in terminal.output
    assert terminal.output.rfind(HIDDEN) < terminal.output.rfind(SHOWN)
    assert terminal.output.rfind("\x1b[?25l") < terminal.output.rfind("\x1b[?25h")
    assert len([seen for seen in server.seen if seen == requests.Status()]) > 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_top_and_the_terminal_as_it_was(server: FakeServer, env: Env, number: int) -> None:
    server.always(requests.Status(), report())
    with OnTerminal(["top"], env) as terminal:
        terminal.read_until("q leaves")
        terminal.process.send_signal(number)
        assert terminal.finish() == 0
        assert terminal.echoes()
    assert terminal.output.rfind(HIDDEN) < terminal.output.rfind(SHOWN)


def test_top_outlives_daemons(env: Env, socket_path: Path) -> None:
    with OnTerminal(OFTEN, env) as terminal:
        terminal.read_until("no daemon at")
        for name in ("first", "second"):
            with FakeServer(socket_path) as server:
                server.always(requests.Status(), report(model=name))
                terminal.read_until(name)
            terminal.read_until("no daemon at")
        terminal.type("q")
        assert terminal.finish() == 0


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (HangUp(), "closed the connection"),
        (Raw(b"\x02\0\0\0\xff\xff"), "that is no reply"),
        (responses.Err("protocol: what?"), "protocol: what?"),
    ],
)
def test_top_asks_again_after_a_bad_answer(
    server: FakeServer, env: Env, answer: HangUp | Raw | responses.Err, said: str
) -> None:
    server.expect(requests.Status(), answer)
    server.always(requests.Status(), report())
    with OnTerminal(["top", "--interval", "0.5"], env) as terminal:
        terminal.read_until(said)
        terminal.read_until("tiny")
        terminal.type("q")
        assert terminal.finish() == 0


def test_top_off_a_terminal(env: Env) -> None:
    ran = run(["top"], env)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == "superfluid: top needs a terminal to draw on; `superfluid status` prints the same once\n"


def test_top_on_a_terminal_that_cannot_be_drawn_on(env: Env) -> None:
    with OnTerminal(["top"], env | {"TERM": "dumb"}) as terminal:
        assert terminal.finish() == 2
    assert "\x1b" not in terminal.output


def test_top_without_a_keyboard(server: FakeServer, env: Env) -> None:
    server.always(requests.Status(), report())
    script = "import os, sys; os.dup2(os.open(os.devnull, os.O_RDONLY), 0); from superfluid_cli.__main__ import main;"
    with OnTerminal(["-c", f"{script} sys.exit(main({list(OFTEN)}))"], env, PROGRAM[:1]) as terminal:
        terminal.read_until("q leaves")
        terminal.read_until("q leaves")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.finish() == 0
