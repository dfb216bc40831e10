"""What any command does with bad words, help, versions and a daemon that is not there."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.main import get_command

from superfluid.protocol import requests, responses
from superfluid_cli.app import app
from superfluid_cli.exits import Exit
from superfluid_cli.lazy import LazyGroup
from tests.cli.conftest import Ran
from tests.cli.fake_server import FakeServer

Cli = Callable[..., Ran]


def every_command() -> Iterator[tuple[tuple[str, ...], Any, typer.Context]]:
    """Path, command and context of each command and group, aliases included."""
    root = get_command(app)
    waiting: list[tuple[tuple[str, ...], Any, typer.Context]] = [
        ((), root, typer.Context(root, info_name="superfluid"))
    ]
    while waiting:
        path, command, ctx = waiting.pop()
        yield path, command, ctx
        if isinstance(command, LazyGroup):
            for name in command.list_commands(ctx):
                below = command.get_command(ctx, name)
                waiting.append(((*path, name), below, typer.Context(below, info_name=name, parent=ctx)))


COMMANDS = {path: (command, ctx) for path, command, ctx in every_command()}
SESSION_COMMANDS = sorted(
    path for path, (command, _) in COMMANDS.items() if path[:1] == ("session",) and not isinstance(command, LazyGroup)
)
OFFLINE = ("check",)


@pytest.mark.parametrize("path", sorted(COMMANDS), ids=" ".join)
def test_every_command_explains_itself(cli: Cli, path: tuple[str, ...]) -> None:
    for flag in ("--help", "-h"):
        ran = cli(*path, flag)
        assert ran.code == 0
        assert ran.err == ""
        assert ran.out.startswith(f"Usage: {' '.join(('superfluid', *path))} ")
    assert path[:1] == ("help",) or cli("help", *path).out == ran.out


@pytest.mark.parametrize("path", sorted(COMMANDS), ids=" ".join)
def test_every_option_has_a_help_text_and_a_parser(path: tuple[str, ...]) -> None:
    command, ctx = COMMANDS[path]
    for param in command.get_params(ctx):
        assert param.help, param.name
        kind = param.type_descriptor.annotation
        assert kind in (str, bool, list[str]) or param.type_descriptor.parameter_info.parser, param.name


@pytest.mark.parametrize("path", [path for path in SESSION_COMMANDS if path[1] not in OFFLINE], ids=" ".join)
def test_every_session_command_takes_a_socket(path: tuple[str, ...]) -> None:
    command, ctx = COMMANDS[path]
    assert "--socket" in [name for param in command.get_params(ctx) for name in param.opts]


def test_aliases_are_not_listed(cli: Cli) -> None:
    assert "inspect" not in cli("session", "--help").out


@pytest.mark.parametrize("path", [(), ("session",), ("session", "flash")])
def test_no_command_is_an_overview_on_stderr(cli: Cli, path: tuple[str, ...]) -> None:
    ran = cli(*path)
    assert (ran.code, ran.out) == (2, "")
    assert "Commands:" in ran.err


@pytest.mark.parametrize("word", ["--version", "-V", "version"])
def test_version(cli: Cli, word: str) -> None:
    assert cli(word) == Ran(0, "superfluid 0.1.0\n", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("sesion",), "no command 'sesion'; did you mean session"),
        (("session", "lst"), "no command 'lst'; did you mean list?"),
        (("session", "xyzzy"), "no command 'xyzzy' (see"),
        (("help", "session", "raed"), "no command 'raed'; did you mean read"),
        (("help", "version", "x"), "no command 'x'"),
        (
            ("session", "say", "1", "x", "--max-toknes", "3"),
            "no such option: --max-toknes; did you mean --max-tokens?",
        ),
        (("serve", "--gpu-layer=3"), "no such option: --gpu-layer; did you mean --gpu-layers"),
        (("session", "read"), "missing argument 'ID'"),
        (("session", "read", "x y"), "invalid value for 'ID': expected a session's id or name, got 'x y'"),
        (("session", "read", "9" * 30), "invalid value for 'ID': expected a session id, which is a whole number"),
        (("session", "name", "1", "22"), "invalid value for 'NAME': expected a name of up to 128 letters, digits"),
        (("session", "ask", "1", "x", "--seed", "3"), "--seed is of no use without --temperature"),
        (("session", "flash", "remove", "1", "x"), "invalid value for 'QUERY': expected a whole number from 1"),
        (("session", "read", "-1"), "no such option: -1"),
        (("session", "read", "1.5"), "invalid value for 'ID'"),
        (("session", "read", "1", "2"), "got unexpected extra argument(s) (2); a text with spaces stands in quotes"),
        (("session", "read", "1", "--cursor"), "option '--cursor' requires an argument"),
        (("session", "say", "1", "x", "--max-tokens", "0"), "invalid value for '--max-tokens'"),
        (("session", "new", "--temperature", "hot"), "invalid value for '--temperature': expected a number"),
        (("session", "new", "--top-p", "2"), "invalid value for '--top-p': expected a number from 0 to 1, got '2'"),
        (("session", "new", "--seed", "-3"), "invalid value for '--seed'"),
        (("session", "append", "1", "--tokens", "1,x"), "--tokens: expected token ids"),
        (("session", "append", "1", "x", "--tokens", "1"), "--tokens goes with neither"),
        (("session", "append", "1", "x", "--role", "tool"), "invalid value for '--role'"),
        (("session", "list", "--socket", "/" + "x" * 200), "invalid value for '--socket'"),
        (
            ("session", "qos", "1", "best"),
            "invalid value for 'CLASS': expected interactive, completion, agent or back",
        ),
        (("session", "background-rate", "0"), "invalid value for 'N': expected a whole number from 1 to"),
        (("stop", "--timeout", "soon"), "invalid value for '--timeout': expected a time"),
        (("top",), "top needs a terminal to draw on; `superfluid status` prints"),
        (("session", "list", "--socket", ""), "invalid value for '--socket'"),
    ],
)
def test_bad_words(cli: Cli, arguments: tuple[str, ...], message: str) -> None:
    ran = cli(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"superfluid: {message}")
    assert ran.err.count("\n") == 1


def test_the_environment_is_named_where_it_is_at_fault(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    typed = cli("serve", "--threads", "0").err
    assert typed.startswith("superfluid: invalid value for '--threads': expected auto or a whole number")
    monkeypatch.setenv("SUPERFLUID_THREADS", "0")
    assert "(env var: 'SUPERFLUID_THREADS')" in cli("serve").err


def test_control_characters_in_bad_words_stay_off_the_terminal(cli: Cli) -> None:
    for arguments in (("\x1b]0;x\x07",), ("--\x1b[2J",), ("session", "read", "\x9b2J")):
        ran = cli(*arguments)
        assert ran.code == 2
        assert not [char for char in ran.err if (ord(char) < 0x20 and char != "\n") or 0x7F <= ord(char) < 0xA0]


def test_no_daemon(cli: Cli, socket_path: Path) -> None:
    assert cli("session", "list") == Ran(
        3, "", f"superfluid: no daemon at {socket_path}; start one with `superfluid serve`\n"
    )


def test_the_flag_wins_over_the_environment(
    cli: Cli, server: FakeServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUPERFLUID_SOCKET", str(folder / "elsewhere"))
    assert cli("session", "list").code == 3
    server.expect(requests.Sessions(False), responses.SessionList(()))
    assert cli("session", "list", "--socket", str(server.path)).code == 0


def test_the_home_names_the_socket(cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SUPERFLUID_SOCKET")
    monkeypatch.setenv("SUPERFLUID_HOME", str(folder / "home"))
    (folder / "home").mkdir()
    with FakeServer(folder / "home" / "superfluid.sock") as server:
        server.always(requests.Names(), responses.Names(()))
        server.expect(requests.Sessions(False), responses.SessionList(()))
        assert cli("session", "list").code == 0


def test_a_bad_environment_variable_is_named(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUPERFLUID_MAX_TOKENS", "many")
    ran = cli("session", "say", "1", "x")
    assert ran.code == 2
    assert "SUPERFLUID_MAX_TOKENS" in ran.err


def test_a_refusal_is_one_line(cli: Cli, server: FakeServer) -> None:
    server.expect(requests.Sessions(False), responses.Err("io: one\ntwo\x1b[0m"))
    assert cli("session", "list") == Ran(1, "", "superfluid: io: one two\\e[0m\n")


def test_a_bug_is_one_line(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(socket: Path | None) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("superfluid_cli.options.connect", broken)
    assert cli("session", "list") == Ran(1, "", "superfluid: internal error: ZeroDivisionError: oops\n")


def test_exit_codes_are_stable() -> None:
    assert {code.name: int(code) for code in Exit} == {
        "OK": 0,
        "FAILURE": 1,
        "USAGE": 2,
        "NO_DAEMON": 3,
        "NO_SESSION": 4,
        "CANCELLED": 130,
        "PIPE": 141,
    }
