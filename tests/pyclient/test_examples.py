"""The two demos, run as the programs they are, on a daemon in miniature."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from superfluid_client import Client

from tests.pyclient.conftest import SOURCES

TOY = Path(__file__).with_name("toy_daemon.py")
TIMEOUT = 120


def run(example, *arguments, **env):
    return subprocess.run(
        [sys.executable, str(SOURCES / "examples" / example), *arguments],
        env={**os.environ, "PYTHONPATH": str(SOURCES), "TMPDIR": env.pop("tmpdir", "/tmp"), **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )


@pytest.fixture
def program(tmp_path):
    """A `superfluid` to run."""
    path = tmp_path / "superfluid"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{TOY}" "$@"\n')
    path.chmod(0o755)
    return path


@pytest.fixture
def daemon(tmp_path, program, unused_port):
    """Its address, while it runs."""
    argv = [program, "serve", "toy", "--sessions", tmp_path / "sessions", "--no-http", "--no-tui"]
    process = subprocess.Popen([*argv, "--web", f"127.0.0.1:{unused_port}"])
    url = f"http://127.0.0.1:{unused_port}"
    deadline = time.monotonic() + TIMEOUT
    try:
        while not Client(url, "token").health():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        yield url
    finally:
        process.kill()
        process.wait()


def test_the_plug_is_pulled_and_the_reply_goes_on(program, tmp_path):
    done = run(
        "pull_the_plug.py",
        "toy",
        "--superfluid",
        str(program),
        "--after",
        "10",
        "--max-tokens",
        "30",
        tmpdir=str(tmp_path),
    )
    assert done.returncode == 0, done.stderr
    _, before, _, after, last = re.split(r"\n--- .*\n\n", done.stdout)
    assert before == "".join(f"{n} " for n in range(10))
    kept = int(re.search(r"the log kept (\d+) of 20 characters", done.stdout)[1])
    tokens = kept // 2 if kept <= 20 else 10 + (kept - 20) // 3
    assert tokens % 4 == 0
    assert after == "".join(f"{n} " for n in range(tokens + 30))
    assert f"drew {20 - kept if kept < 20 else 0} of those shown again; 30 tokens more, finish: length" in done.stdout
    assert last == ""
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("superfluid-")] == []


def test_a_reply_that_ends_first_says_so(program):
    done = run("pull_the_plug.py", "toy", "--superfluid", str(program), "--after", "10", "--max-tokens", "9")
    assert done.returncode == 1
    assert "ended after 9 pieces" in done.stderr


def test_a_server_that_does_not_start_says_why(program):
    done = run("pull_the_plug.py", "broken", "--superfluid", str(program))
    assert done.returncode == 1
    assert "superfluid: no such model" in done.stderr


def test_a_program_that_is_not_there():
    done = run("pull_the_plug.py", "toy", "--superfluid", "/nowhere/superfluid")
    assert done.returncode == 2
    assert "/nowhere/superfluid: no such program" in done.stderr


def test_questions_fan_out(daemon, tmp_path):
    (tmp_path / "document").write_text("A river.")
    done = run(
        "fanout.py",
        "--context",
        str(tmp_path / "document"),
        "--question",
        "Which?",
        "--question",
        "Where?",
        "--max-tokens",
        "3",
        SUPERFLUID_WEB_URL=daemon,
        SUPERFLUID_WEB_TOKEN="token",
    )
    assert done.returncode == 0, done.stderr
    assert "[3] Which? - first text after" in done.stdout
    assert "[4] Where? - first text after" in done.stdout
    assert done.stdout.count("  0 1 2\n") == 2
    assert "6 tokens in" in done.stdout
    assert "2 of 2 answers started from the 20 tokens read once" in done.stdout
    assert done.stdout.endswith("sessions: 1, forks 3, 4\n")
    seeds = [Client(daemon, "token").get(id).sampling.seed for id in (1, 3, 4)]
    assert seeds == [7, 7, 8]


def test_a_fanout_without_a_daemon_or_a_document(tmp_path):
    (tmp_path / "document").write_text("A river.")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\xff")
    for context, code, says in [("document", 1, "refused"), ("binary", 2, "binary: "), ("absent", 2, "absent: ")]:
        done = run(
            "fanout.py",
            "--context",
            str(tmp_path / context),
            SUPERFLUID_WEB_URL="http://127.0.0.1:1",
            SUPERFLUID_WEB_TOKEN="token",
        )
        assert done.returncode == code, done.stderr
        assert says in done.stderr
