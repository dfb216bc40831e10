"""What a shell is offered where a session is wanted."""

import subprocess
import sys
from pathlib import Path

from superfluid.protocol import requests, responses
from tests.cli.fake_server import FakeServer, summary

DEADLINE = 60
Env = dict[str, str]


def offered(env: Env, *words: str) -> tuple[int, list[str], str]:
    line = {"COMP_WORDS": " ".join(("superfluid", *words)), "COMP_CWORD": str(len(words))}
    ran = subprocess.run(
        [sys.executable, "-m", "superfluid_cli"],
        env=env | line | {"_SUPERFLUID_COMPLETE": "complete_bash"},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    return ran.returncode, ran.stdout.split(), ran.stderr


def test_ids_and_names_that_begin_so(env: Env, server: FakeServer) -> None:
    server.expect(requests.Sessions(False), responses.SessionList((summary(5), summary(12), summary(51))))
    assert offered(env, "session", "fork", "5") == (0, ["5", "51"], "")
    server.expect(requests.Sessions(False), responses.SessionList((summary(5), summary(12))))
    assert offered(env, "session", "say", "f") == (0, ["feed"], "")


def test_nothing_without_a_daemon(env: Env, socket_path: Path) -> None:
    assert offered(env, "session", "fork", "5") == (0, [], "")
