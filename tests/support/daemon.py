"""A real daemon process on a directory of its own, started, killed and started again by tests."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from superfluid.protocol import requests, responses
from superfluid.protocol.records import GenParams, span_of
from superfluid_cli.client import Client

DEADLINE = 120.0
"""Seconds after which a test gives up waiting, on a machine that may be busy. Nothing is asserted about times."""

GREEDY = GenParams(0.0, 1.0, 0.0, 0, 0)
SAMPLED = GenParams(0.800000011920929, 0.949999988079071, 0.0, 40, 7)

FAKE = (sys.executable, "-m", "superfluid.engine", "--fake")
"""The verified fake worker: same frames, a small deterministic model, no llama.cpp."""


class Daemon:
    """One daemon. `settings` are ServeConfig's; one compute thread, small context and few lanes by default."""

    def __init__(self, directory: Path, **settings: object) -> None:
        self.directory = directory
        self.sessions = directory / "sessions"
        # A path under pytest's own directory may be too long for a socket.
        self._sockets = tempfile.TemporaryDirectory(prefix="sf-")
        self.socket = Path(self._sockets.name) / "s"
        self.settings: dict[str, object] = {
            "model": None,
            "max_context": 2048,
            "max_batch": 4,
            "threads": 1,
            "kv_host_bytes": 256 << 20,
            **settings,
        }
        self.process: subprocess.Popen[str] | None = None
        self.errors = directory / "stderr"

    def start(self, *, ready: bool = True) -> Daemon:
        settings = {**self.settings, "socket": str(self.socket), "sessions": str(self.sessions)}
        with self.errors.open("a") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.serve", json.dumps(settings)],
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                text=True,
                cwd=Path(__file__).parents[2],
            )
        if ready:
            with self.client() as client:
                client.ask(requests.List(), responses.Sessions)
        return self

    def client(self) -> Client:
        """A connection; waits for the daemon to be there, and fails with its words where it is not."""
        deadline = time.monotonic() + DEADLINE
        while True:
            try:
                return Client(self.socket, DEADLINE)
            except Exception as fault:
                if self.process is None or self.process.poll() is not None or time.monotonic() > deadline:
                    raise AssertionError(f"no daemon: {fault}; it said: {self.said()}") from fault
                time.sleep(0.02)

    def said(self) -> str:
        return self.errors.read_text() if self.errors.exists() else ""

    def url(self) -> str:
        """Where the HTTP listener of a daemon that is ready was bound, the last time it started."""
        return re.findall(r"^http on (\S+)$", self.said(), re.MULTILINE)[-1]

    def web_url(self) -> str:
        """Likewise the browser transport's."""
        return re.findall(r"^web on (\S+)$", self.said(), re.MULTILINE)[-1]

    def workers(self) -> list[psutil.Process]:
        """The daemon's engine workers."""
        assert self.process is not None
        return psutil.Process(self.process.pid).children()

    def kill(self) -> None:
        """SIGKILL, and the workers' end waited for."""
        assert self.process is not None
        workers = self.workers()
        self.process.kill()
        self.process.wait(DEADLINE)
        _, alive = psutil.wait_procs(workers, DEADLINE)
        assert not alive, "an orphan worker is left"

    def stop(self, by: signal.Signals = signal.SIGTERM) -> int:
        """Drain; the exit status."""
        assert self.process is not None
        self.process.send_signal(by)
        return self.process.wait(DEADLINE)

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._sockets.cleanup()

    def __enter__(self) -> Daemon:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()


def tokens_of(client: Client, session: int) -> tuple[int, ...]:
    """The session's token stream, as Inspect tells it."""
    return client.ask(requests.Inspect(session), responses.Inspection).inspection.tokens


def create(client: Client, params: GenParams = GREEDY) -> int:
    return client.ask(requests.Create(None, params), responses.Created).session


def say(client: Client, session: int, text: str, role: int = 1) -> responses.Committed:
    return client.ask(requests.AppendMessage(session, role, text), responses.Committed)


def generate(client: Client, session: int, max_tokens: int) -> responses.Generated:
    """Run a generation to its end; its summary."""
    *_, last = client.generate(session, max_tokens)
    assert isinstance(last, responses.Generated)
    return last


def drawn(summary: responses.Generated) -> tuple[int, ...]:
    """The tokens that a generation drew."""
    return tuple(token for event in summary.events for token in span_of(event.body))
