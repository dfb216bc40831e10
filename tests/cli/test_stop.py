"""`stop`: a signal to the right process, and its end waited for."""

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from superfluid.protocol import requests, responses
from tests.cli.conftest import Ran
from tests.cli.fake_server import DEADLINE, FakeServer, report
from tests.cli.processes import read_until
from tests.support.daemon import FAKE, Daemon

Cli = Callable[..., Ran]
Env = dict[str, str]


def test_stop_ends_a_daemon(cli: Cli, tmp_path: Path) -> None:
    with Daemon(tmp_path, worker_argv=FAKE) as daemon:
        assert daemon.process is not None
        here = ("--socket", str(daemon.socket))
        assert f"pid {daemon.process.pid}," in cli("status", *here).out
        ran = cli("stop", *here)
        assert ran == Ran(0, "", f"the daemon at {daemon.socket} (pid {daemon.process.pid}) has stopped\n")
        assert not daemon.socket.exists()
        assert daemon.process.wait(DEADLINE) == 0
        assert cli("stop", *here).code == 3


DEAF = """
import os, signal, sys
from pathlib import Path
from superfluid.protocol import requests
from tests.cli.fake_server import FakeServer, report

signal.signal(signal.SIGTERM, lambda *_: print("heard", flush=True))
with FakeServer(Path(sys.argv[1])) as server:
    server.always(requests.Status(), report(pid=os.getpid()))
    print("ready", flush=True)
    while True:
        signal.pause()
"""


def test_stop_gives_up_on_a_daemon_that_goes_on(cli: Cli, socket_path: Path) -> None:
    command = [sys.executable, "-c", DEAF, str(socket_path)]
    with subprocess.Popen(command, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE) as process:
        try:
            read_until(process.stdout, b"ready\n")
            ran = cli("stop", "--timeout", "0.2s")
            read_until(process.stdout, b"heard\n")
        finally:
            process.send_signal(signal.SIGKILL)
    assert ran == Ran(1, "", f"superfluid: the daemon at {socket_path} (pid {process.pid}) still runs after 0 s\n")


def test_stop_does_not_wait_for_a_socket_that_was_left_behind(cli: Cli, socket_path: Path) -> None:
    script = DEAF.replace('lambda *_: print("heard", flush=True)', "signal.SIG_DFL")
    command = [sys.executable, "-c", script, str(socket_path)]
    with subprocess.Popen(command, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE) as process:
        read_until(process.stdout, b"ready\n")
        assert cli("stop").code == 0
    assert socket_path.exists()
    assert process.returncode == -signal.SIGTERM


def test_stop_signals_nobody_else(cli: Cli, server: FakeServer) -> None:
    """In a container the daemon has another number, which here is that of a bystander."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as bystander:
        server.always(requests.Status(), report(pid=bystander.pid))
        if sys.platform == "linux":  # elsewhere nobody can tell
            ran = cli("stop")
            assert (ran.code, ran.out) == (1, "")
            assert "is out of reach" in ran.err
        bystander.communicate(b"\n", DEADLINE)
    assert bystander.returncode == 0


def test_stop_of_what_is_no_daemon(cli: Cli, server: FakeServer) -> None:
    server.expect(requests.Status(), responses.Ack())
    ran = cli("stop")
    assert (ran.code, ran.out) == (1, "")
    assert "does not fit the request" in ran.err


@pytest.mark.parametrize("command", ["status", "stop"])
def test_no_daemon(cli: Cli, socket_path: Path, command: str) -> None:
    said = f"superfluid: no daemon at {socket_path}; start one with `superfluid serve`\n"
    assert cli(command) == Ran(3, "", said)
