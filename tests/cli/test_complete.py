"""`superfluid complete`: where its texts come from, and what it prints."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from superfluid.protocol import requests, responses
from tests.cli.conftest import Ran
from tests.cli.fake_server import FakeServer

Cli = Callable[..., Ran]
MIDDLE = responses.Completion("return x\x1b", (5, 6), False, False)


@pytest.mark.parametrize(
    ("arguments", "stdin", "asked"),
    [
        (("def f(", "\n)"), b"", ("def f(", "\n)")),
        (("a ",), b"", ("a ", "")),
        ((), b"from stdin\n", ("from stdin\n", "")),
        (("-", "b"), b"from stdin\n", ("from stdin\n", "b")),
        (("a", "-"), b"from stdin\n", ("a", "from stdin\n")),
        (("", "b"), b"", ("", "b")),
        (("--prefix-file", "P"), b"", ("before\n", "")),
        (("--prefix-file", "P", "b"), b"", ("before\n", "b")),
        (("--prefix-file", "P", "-"), b"in", ("before\n", "in")),
        (("a", "--suffix-file", "S"), b"", ("a", "after\n")),
        (("--suffix-file", "S"), b"in", ("in", "after\n")),
        (("--prefix-file", "P", "--suffix-file", "S"), b"", ("before\n", "after\n")),
    ],
)
def test_where_the_texts_come_from(
    cli: Cli, server: FakeServer, folder: Path, arguments: tuple[str, ...], stdin: bytes, asked: tuple[str, str]
) -> None:
    (folder / "P").write_text("before\n")
    (folder / "S").write_text("after\n")
    named = [str(folder / word) if word in ("P", "S") else word for word in arguments]
    server.expect(requests.Complete(*asked, 0, 128), MIDDLE)
    assert cli("complete", *named, stdin=stdin) == Ran(0, "return x\x1b", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("a", "b", "--prefix-file", "/x"), "both PREFIX and --prefix-file"),
        (("a", "b", "--suffix-file", "/x"), "both SUFFIX and --suffix-file"),
        (("-", "-"), "cannot both come from stdin"),
        (("", ""), "both texts are empty"),
        ((), "both texts are empty"),
        (("--prefix-file", "/nowhere/p"), "--prefix-file /nowhere/p: No such file"),
        (("\udcff", "b"), "PREFIX is not UTF-8"),
    ],
)
def test_bad_texts(cli: Cli, server: FakeServer, arguments: tuple[str, ...], message: str) -> None:
    ran = cli("complete", *arguments)
    assert ran.code == 2
    assert message in ran.err
    assert server.seen == []


def test_options(cli: Cli, server: FakeServer) -> None:
    server.expect(requests.Complete("a", "b", 1, 7), MIDDLE)
    ran = cli("complete", "a", "b", "--spm", "--max-tokens", "7", "--json")
    assert json.loads(ran.out) == {"text": "return x\x1b", "tokens": [5, 6], "cached": False, "expired": False}


def test_one_that_was_cut_off(cli: Cli, server: FakeServer) -> None:
    server.expect(requests.Complete("a", "b", 0, 128), responses.Completion("", (), False, True))
    assert cli("complete", "a", "b") == Ran(1, "", "the daemon's deadline came before the completion's end\n")


def test_refusals(cli: Cli, server: FakeServer) -> None:
    server.expect(requests.Complete("a", "b", 0, 128), responses.Throttled(90))
    assert cli("complete", "a", "b") == Ran(1, "", "superfluid: too many completions; try again in 90 ms\n")
    server.expect(requests.Complete("a", "b", 0, 128), responses.Err("protocol: this model has no FIM dialect"))
    assert cli("complete", "a", "b") == Ran(1, "", "superfluid: protocol: this model has no FIM dialect\n")


def test_no_daemon(cli: Cli) -> None:
    assert cli("complete", "a", "b").code == 3
