"""Silence of the daemon is told on a terminal, and only there."""

from typing import Any

import pytest

from superfluid.protocol import requests, responses
from tests.cli.fake_server import FakeServer, Until, done, text
from tests.cli.processes import OnTerminal, run

Env = dict[str, str]
SAID = "waiting for the model, "
ANSWER = responses.Answer("So.", 1, 0, 4, 1, 0, None, None, None)


@pytest.mark.parametrize(
    ("command", "kind", "replies"),
    [
        (("generate", "1"), requests.Generate, (text(2, "So."), done(1))),
        (("ask", "1", "x"), requests.Ask, (responses.AskPiece("So."), ANSWER)),
    ],
    ids=["generate", "ask"],
)
def test_a_long_silence_is_told_and_taken_away(
    server: FakeServer, env: Env, command: tuple[str, ...], kind: type, replies: tuple[Any, ...]
) -> None:
    server.expect(lambda it: isinstance(it, kind), Until(requests.SetBackgroundRate), *replies)
    server.expect(requests.SetBackgroundRate(1), responses.Ack())
    with OnTerminal(["session", *command], env | {"NO_COLOR": "1"}) as terminal:
        terminal.read_until(SAID)
        assert run(["session", "background-rate", "1"], env).returncode == 0
        assert terminal.finish() == 0
    sign, reply = terminal.output.rfind(SAID), terminal.output.find("So.")
    assert -1 < sign < reply
    line, _, wiped = terminal.output[sign:reply].partition("\r")
    assert len(wiped) > len(line)
    assert not wiped.strip()


def test_a_pipe_hears_nothing_of_it(server: FakeServer, env: Env) -> None:
    server.expect(requests.Generate(1, 1024), text(2, "So."), done(1))
    ran = run(["session", "generate", "1"], env)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "So.\n", "")
