"""The program as a process: signals, pipes that close, streams that are not there, terminals, imports."""

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from superfluid.protocol import records, requests, responses
from tests.cli.fake_server import (
    DEADLINE,
    Endless,
    FakeServer,
    Until,
    committed,
    done,
    event,
    summary,
    text,
)
from tests.cli.processes import PROGRAM, OnTerminal, read_until, run

Env = dict[str, str]
ESCAPE = "\x1b["


def start(arguments: list[str], env: Env) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*PROGRAM, *arguments],
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


# --- signals ------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("command", ["say", "generate"])
def test_ctrl_c_stops_the_reply(server: FakeServer, env: Env, command: str) -> None:
    if command == "say":
        server.expect(requests.AppendMessage(1, 1, "x"), committed(1))
    server.expect(
        requests.Generate(1, 1024), text(3, "One"), Until(requests.Cancel), text(4, " two", finish=4), done(finish=4)
    )
    server.expect(requests.Cancel(1), responses.Cancelling())
    with start(["session", command, "1", *(["x"] if command == "say" else [])], env) as process:
        assert read_until(process.stdout, b"One") == b"One"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=DEADLINE)
    assert (process.returncode, out, err) == (130, b" two\n", b"")


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_where_nothing_can_be_cancelled_hangs_up(server: FakeServer, env: Env) -> None:
    server.expect(requests.Generate(1, 1024), text(3, "One"), Until(requests.Cancel), Endless(text(4, "")))
    server.expect(requests.Cancel(1), responses.Err("session 1 has no generation in flight"))
    with start(["session", "generate", "1"], env) as process:
        read_until(process.stdout, b"One")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=DEADLINE)
    assert (process.returncode, out, err) == (130, b"\n", b"")
    assert server.hung_up.wait(DEADLINE)


@pytest.mark.usefixtures("interruptible")
def test_a_second_ctrl_c_does_not_wait_for_the_end(server: FakeServer, env: Env) -> None:
    server.expect(requests.Generate(1, 1024), text(3, "One"), Until(requests.Cancel), text(4, " two"))
    server.expect(requests.Cancel(1), responses.Cancelling())
    with start(["session", "generate", "1"], env) as process:
        read_until(process.stdout, b"One")
        process.send_signal(signal.SIGINT)
        read_until(process.stdout, b" two")
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=DEADLINE) == (b"\n", b"")
    assert process.returncode == 130


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_ends_a_watch(server: FakeServer, env: Env) -> None:
    seen = responses.SubEvent(1, event(0, records.EpochBump()))
    server.expect(requests.Subscribe(1, 0, False), responses.Subscribed(1), seen)
    with start(["session", "watch", "1"], env) as process:
        read_until(process.stdout, b"\n")
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=DEADLINE) == (b"", b"")
    assert process.returncode == 130


# --- pipes and streams --------------------------------------------------------------------------------------------


def test_a_reader_that_leaves_ends_the_reply(server: FakeServer, env: Env) -> None:
    server.expect(requests.Generate(1, 1024), Endless(text(3, "more ")))
    with start(["session", "generate", "1"], env) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        read_until(process.stdout, b"more")
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(DEADLINE) == 141
    assert server.hung_up.wait(DEADLINE)


def test_a_reader_that_leaves_a_table(server: FakeServer, env: Env) -> None:
    long = responses.SessionList(tuple(summary(id_, title="t" * 90) for id_ in range(2000)))
    server.expect(requests.Sessions(False), long)
    with start(["session", "list"], env) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(DEADLINE) == 141


def shell(script: str, env: Env) -> subprocess.CompletedProcess[str]:
    """Run a shell line in which `$SF` is the program."""
    line = script.replace("$SF", " ".join(PROGRAM))
    return subprocess.run(
        ["/bin/sh", "-c", line], env=env, capture_output=True, text=True, timeout=DEADLINE, check=False
    )


@pytest.mark.parametrize("command", ["session say 1", "session append 1", "session chat 1"])
def test_closed_stdin(env: Env, command: str) -> None:
    ran = shell(f"$SF {command} <&-", env)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "stdin" in ran.stderr
    assert "closed" in ran.stderr
    assert ran.stderr.count("\n") == 1


def test_closed_stdout(server: FakeServer, env: Env) -> None:
    server.expect(requests.Sessions(False), responses.SessionList((summary(1),)))
    ran = shell("$SF session list >&-", env)
    assert (ran.returncode, ran.stderr) == (1, "superfluid: stdout is closed\n")


def test_closed_stderr(server: FakeServer, env: Env) -> None:
    server.expect(requests.Read(1, 0), responses.Err("unknown session 1"))
    assert shell("$SF session read 1 2>&-", env).returncode == 4


def test_output_that_cannot_be_written(server: FakeServer, env: Env, folder: Path) -> None:
    server.expect(requests.Sessions(False), responses.SessionList((summary(1),)))
    ran = shell(f"ulimit -f 0; $SF session list > {folder}/out", env)  # a full disk, as far as a program can tell
    assert (ran.returncode, ran.stderr) == (1, "superfluid: stdout cannot be written: File too large\n")


def test_an_encoding_that_lacks_the_character(server: FakeServer, env: Env) -> None:
    server.expect(requests.Generate(1, 1024), text(3, "naïve 👍"), done())
    ran = run(["session", "generate", "1"], env | {"PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"})
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "na?ve ?\n", "")


# --- terminals ----------------------------------------------------------------------------------------------------


def script(server: FakeServer, command: str) -> None:
    """What the daemon says to one of the commands that look different on a terminal."""
    evil = "[red]\x1b[31mtitle"
    if command == "list":
        server.expect(requests.Sessions(False), responses.SessionList((summary(1, title=evil), summary(2))))
    elif command == "tree":
        server.expect(requests.Tree(), responses.Tree(((1, None, 0), (2, 1, 3), (3, 9, 4))))
        server.expect(requests.Sessions(True), responses.SessionList((summary(1, title=evil), summary(2))))
    elif command == "read 1":
        log = (event(1, records.Message(1, f"{evil}\nsecond", (1,))), event(2, records.EpochBump()))
        server.expect(requests.Read(1, 0), responses.Events(log))
    elif command == "generate 1":
        server.expect(requests.Generate(1, 1024), text(3, "hm", channel=1), text(4, evil), done())


def test_a_cut_reply_says_how_it_goes_on(server: FakeServer, env: Env) -> None:
    server.expect(requests.Generate(1, 2), text(2, "So it"), done(2, finish=2))
    with OnTerminal(["session", "generate", "1", "--max-tokens", "2"], env | {"NO_COLOR": "1"}) as terminal:
        assert terminal.finish() == 0
    said = "2 tokens, 5 warm, cut at the token limit; `superfluid session generate 1` goes on"
    assert terminal.output == f"So it\r\n{said}\r\n"


COMMANDS = ["list", "tree", "read 1", "generate 1"]


@pytest.mark.parametrize("command", COMMANDS)
def test_on_a_terminal(server: FakeServer, env: Env, command: str) -> None:
    script(server, command)
    with OnTerminal(["session", *command.split()], env) as terminal:
        assert terminal.finish() == 0
    assert ESCAPE + "31m" not in terminal.output
    assert ESCAPE in terminal.output or command == "tree"
    words = re.sub(r"\x1b\[[0-9;]*m", "", terminal.output)
    if command == "generate 1":
        assert words == "hm\r\n[red][31mtitle\r\n3 tokens, 5 warm, end of turn\r\n"
    elif command == "read 1":
        assert "  [red][31mtitle\r\n  second\r\n#2 EpochBump" in words
    else:
        assert "[red]\\e[31mtitle" in words
    if command == "tree":
        assert re.search("└── 2 .*from 1 at event 3", words)
        assert re.search("^3 .*from 9 at event 4", words, re.MULTILINE)


@pytest.mark.parametrize("change", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_no_colour_on_a_terminal(server: FakeServer, env: Env, change: Env) -> None:
    script(server, "read 1")
    with OnTerminal(["session", "read", "1"], env | change) as terminal:
        assert terminal.finish() == 0
    assert "\x1b" not in terminal.output
    assert "EpochBump" in terminal.output


def test_no_colour_in_a_table(server: FakeServer, env: Env) -> None:
    script(server, "list")
    with OnTerminal(["session", "list"], env | {"NO_COLOR": "1", "FORCE_COLOR": "1"}) as terminal:
        assert terminal.finish() == 0
    assert "\x1b" not in terminal.output


@pytest.mark.parametrize("command", COMMANDS)
def test_no_escapes_of_ours_in_a_pipe(server: FakeServer, env: Env, command: str) -> None:
    script(server, command)
    ran = run(["session", *command.split()], env | {"FORCE_COLOR": "1"})
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "\x1b" not in ran.stdout.replace("\x1b[31mtitle", "", 1 if command == "generate 1" else 0)


def test_purge_asks(server: FakeServer, env: Env) -> None:
    known = responses.SessionList((summary(1, title="notes"),))
    server.expect(requests.Sessions(True), known)
    with OnTerminal(["session", "purge", "1", "--cascade"], env) as terminal:
        terminal.read_until("Purge session 1 (notes) and everything forked from it for good?")
        terminal.type("n\n")
        assert terminal.finish() == 1
    assert "nothing was purged" in terminal.output
    server.expect(requests.Sessions(True), known)
    server.expect(lambda it: isinstance(it, requests.Purge), responses.Purged((1,)))
    with OnTerminal(["session", "purge", "1"], env) as terminal:
        terminal.read_until("[y/N]")
        terminal.type("y\n")
        assert terminal.finish() == 0


SERVE = """
import sys, types
from pathlib import Path
from superfluid.daemon.config import ServerInfo

def serve(config, observer):
    observer.loading(0)
    observer.loading(420)
    observer.notice("still at it")
    p = Path("/p")
    observer.ready(ServerInfo("tiny", p, ("GPU 0",), 2**31 - 1, "2", 512, 1, 2**30, 2**20, p, p, p, False, 7))

sys.modules["superfluid.serving"] = module = types.ModuleType("superfluid.serving")
module.serve = serve
from superfluid_cli.__main__ import main
sys.exit(main(["serve"]))
"""


@pytest.mark.parametrize("colour", [True, False])
def test_serve_draws_a_bar(env: Env, colour: bool) -> None:
    with OnTerminal(["-c", SERVE], env if colour else env | {"NO_COLOR": "1"}, PROGRAM[:1]) as terminal:
        assert terminal.finish() == 0
    assert "42%" in terminal.output
    assert "still at it" in terminal.output
    assert "model     tiny  (no chat template: raw text only)\r\n" in terminal.output
    assert "devices   GPU 0, all layers on the GPU\r\n" in terminal.output
    assert bool(re.search(r"\x1b\[[0-9;]*m", terminal.output)) is colour
    hidden, shown = terminal.output.rfind("\x1b[?25l"), terminal.output.rfind("\x1b[?25h")
    assert hidden < shown, "the cursor is left hidden"


@pytest.mark.usefixtures("interruptible")
def test_chat_on_a_terminal(server: FakeServer, env: Env) -> None:
    server.expect(requests.Sessions(True), responses.SessionList((summary(1),)))
    server.expect(requests.AppendMessage(1, 1, "count"), committed(1))
    server.expect(requests.Generate(1, 1024), text(3, "One"), Until(requests.Cancel), text(4, " two"), done(finish=4))
    server.expect(requests.Cancel(1), responses.Cancelling())
    server.expect(requests.AppendMessage(1, 1, "more"), committed(5))
    server.expect(requests.Generate(1, 1024), text(6, "Three"), done())
    with OnTerminal(["session", "chat", "1"], env) as terminal:
        terminal.read_until("> ")
        terminal.type("a slip")
        terminal.read_until("a slip")
        os.kill(terminal.process.pid, signal.SIGINT)  # gives up the line, not the chat
        terminal.type("\n")  # readline may notice the signal only at the next key
        terminal.read_until("> ")
        terminal.type("count\n")
        terminal.read_until("One")
        os.kill(terminal.process.pid, signal.SIGINT)
        terminal.read_until(" two\r\n")
        terminal.read_until("cancelled")
        terminal.read_until("> ")
        terminal.type("more\n")
        terminal.read_until("Three\r\n")
        terminal.read_until("end of turn")
        terminal.read_until("> ")
        terminal.type("\x04")
        assert terminal.finish() == 0
    assert "`superfluid session chat 1` goes on with it" in terminal.output
    assert not [path for path in Path(env["HOME"]).rglob("*") if "history" in path.name]


# --- imports ------------------------------------------------------------------------------------------------------

LOADED = "import sys; print(*sorted({name.partition('.')[0] for name in sys.modules}))"


def loaded_by(code: str, env: Env) -> set[str]:
    ran = subprocess.run(
        [PROGRAM[0], "-c", f"{code}\n{LOADED}"],
        env=env,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=True,
    )
    return set(ran.stdout.split("\n")[-2].split())


HEAVY = {"trio", "llama_cpp", "numpy", "cattrs", "rich", "pydantic", "jinja2", "sqlite3"}


def test_the_app_brings_nothing_heavy(env: Env) -> None:
    assert not loaded_by("import superfluid_cli.program, superfluid_cli.client", env) & HEAVY


def test_a_command_brings_nothing_heavy(server: FakeServer, env: Env) -> None:
    server.expect(requests.Sessions(False), responses.SessionList((summary(1),)))
    code = "from superfluid_cli.__main__ import main; main(['session', 'list'])"
    assert not loaded_by(code, env) & HEAVY


def test_no_command_module_brings_the_daemon(env: Env) -> None:
    code = "from superfluid_cli.__main__ import main; main(['serve', '--help']); main(['session', '--help'])"
    assert not loaded_by(code, env) & HEAVY


def test_the_shell_completes(env: Env) -> None:
    asking = {"_SUPERFLUID_COMPLETE": "complete_bash", "COMP_WORDS": "superfluid session ren", "COMP_CWORD": "2"}
    ran = run([], env | asking)
    assert (ran.returncode, ran.stdout.strip()) == (0, "rename")
