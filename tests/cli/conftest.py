"""The command line run in process, as a process, and on a pty, against a scripted daemon."""

from __future__ import annotations

import io
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from superfluid.protocol import requests, responses
from superfluid_cli.__main__ import main
from tests.cli.fake_server import FakeServer


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder whose name is short enough for a socket in it."""
    path = Path(tempfile.mkdtemp(prefix="sf-", dir="/tmp"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def socket_path(folder: Path) -> Path:
    return folder / "s"


@pytest.fixture
def server(socket_path: Path) -> Iterator[FakeServer]:
    with FakeServer(socket_path) as running:
        running.always(requests.Names(), responses.Names(((5, "feed"),)))
        yield running


@pytest.fixture
def env(folder: Path, socket_path: Path) -> dict[str, str]:
    """A process environment with nothing of the user's in it."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "PYTHONPATH", "VIRTUAL_ENV") if name in os.environ}
    return kept | {"HOME": str(folder), "SUPERFLUID_SOCKET": str(socket_path), "TERM": "xterm", "PYTHONUTF8": "1"}


@pytest.fixture
def cli(
    env: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Ran]:
    """Run in this process: `cli("session", "list", stdin=b"")`."""
    for name in list(os.environ):
        if name.startswith("SUPERFLUID_"):
            monkeypatch.delenv(name)
    for name in ("HOME", "SUPERFLUID_SOCKET"):
        monkeypatch.setenv(name, env[name])

    def run(*arguments: str, stdin: bytes = b"") -> Ran:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"))
        capsys.readouterr()
        code = main(list(arguments))
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return run


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Children get SIGINT's default, even where this run was started in the background and ignores it."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, previous)
