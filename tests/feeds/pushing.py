"""`superfluid push` as a process on a real daemon, and what became of the lines that it was given."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from superfluid.protocol import records, requests, responses
from superfluid.protocol.feed_responses import FeedReport
from superfluid_cli.client import Client
from tests.cli.processes import PROGRAM
from tests.durability.house import until
from tests.support.daemon import DEADLINE, Daemon


@dataclass(frozen=True, slots=True)
class Pushed:
    code: int
    out: str
    err: str


class Push:
    """A push under way. Its input is a file, or a pipe where `lines` is None."""

    def __init__(self, daemon: Daemon, *arguments: str, lines: Sequence[str] | None = None) -> None:
        kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "VIRTUAL_ENV") if name in os.environ}
        folder = daemon.directory
        env = kept | {"HOME": str(folder), "SUPERFLUID_SOCKET": str(daemon.socket), "PYTHONUTF8": "1"}
        given: int | object = subprocess.PIPE
        if lines is not None:
            with tempfile.NamedTemporaryFile("w", dir=folder, delete=False) as file:
                file.writelines(f"{line}\n" for line in lines)
            given = os.open(file.name, os.O_RDONLY)
        self.process = subprocess.Popen(
            [*PROGRAM, "push", *arguments],
            env=env,
            stdin=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        if isinstance(given, int) and lines is not None:
            os.close(given)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()

    def write(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def ended(self) -> Pushed:
        """Once all has been pushed; no more is written."""
        out, err = self.process.communicate(timeout=2 * DEADLINE)
        return Pushed(self.process.returncode, out, err)


def push(daemon: Daemon, *arguments: str, lines: Sequence[str]) -> Pushed:
    """The lines of a file pushed by `superfluid push`, to its end."""
    with Push(daemon, *arguments, lines=lines) as pushing:
        return pushing.ended()


def resolve(client: Client, name: str) -> int:
    return client.ask(requests.Resolve(name), responses.Resolved).session


def report(client: Client, session: int) -> FeedReport:
    return client.ask(requests.FeedState(session), responses.Feed).feed


def settled(client: Client, session: int) -> FeedReport:
    """The session once nothing of its data waits or is being ingested."""

    def over() -> bool:
        now = report(client, session)
        return not now.pending and now.taken == now.total_pushed

    until(over)
    return report(client, session)


def batches(client: Client, session: int) -> list[records.Ingested]:
    """Every batch in the session's log."""
    return [event.body for event in client.read(session) if isinstance(event.body, records.Ingested)]


def readable(client: Client, session: int) -> list[str]:
    """Every entry in the session's log."""
    return [entry.text for batch in batches(client, session) for entry in batch.entries]


def lost(batches: Sequence[records.Ingested]) -> int:
    """How many entries the log says were dropped."""
    return sum(batch.dropped for batch in batches)


def left(batches: Sequence[records.Ingested]) -> int:
    """How many entries the log says have left the window."""
    return sum(batch.evicted for batch in batches)
