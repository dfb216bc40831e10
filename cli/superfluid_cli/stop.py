"""`superfluid stop`"""

from __future__ import annotations

import time
from typing import Annotated

import typer

from superfluid.protocol import requests, responses
from superfluid_cli import options, terminal, values
from superfluid_cli.exits import CliError
from superfluid_cli.status import PATIENCE, period

LOOK = 0.05
"""Seconds between two looks at whether it is gone."""

Timeout = Annotated[
    float,
    typer.Option(
        "--timeout",
        metavar="TIME",
        parser=values.duration,
        help="How long to wait for the end: 60, 30s, 2m.",
        show_default="90s",
    ),
]


def stop(timeout: Timeout = 90.0, socket: options.Socket = None) -> None:
    """Stop the daemon and wait until it is gone. Replies in progress end, and what they drew is kept."""
    import psutil

    with options.connect(socket, PATIENCE) as client:
        pid = client.ask(requests.Status(), responses.StatusReport).pid
        path, peer = client.path, client.peer_pid()
    if peer is not None and peer != pid:
        raise CliError(
            f"the daemon at {path} is out of reach: its process has another number here than there ({pid})"
        )
    end = time.monotonic() + timeout
    try:
        process = psutil.Process(pid)
        process.terminate()
        while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
            if time.monotonic() >= end:
                raise CliError(f"the daemon at {path} (pid {pid}) still runs after {period(round(timeout))}")
            time.sleep(LOOK)
    except psutil.NoSuchProcess:
        pass
    except psutil.AccessDenied:
        raise CliError(f"the daemon at {path} (pid {pid}) is another user's") from None
    terminal.note(f"the daemon at {path} (pid {pid}) has stopped")
