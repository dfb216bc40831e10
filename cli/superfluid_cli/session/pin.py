"""`superfluid session pin`, `unpin`"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from superfluid.protocol import requests, responses
from superfluid_cli import events, options, terminal, values

Time = Annotated[
    int, typer.Argument(metavar="TIME", parser=values.milliseconds, help="For how long: 90, 30s, 10m or 2h.")
]


def pin(session: options.Session, time: Time, socket: options.Socket = None) -> None:
    """Keep a session's KV before that of others, and print until when; in a pipe as Unix time in milliseconds.

    A pin replaces the session's earlier one.
    """
    with options.reach(session, socket) as (client, id_):
        deadline = client.ask(requests.Pin(id_, time), responses.Pinned).deadline_unix_ms
    terminal.line(events.moment(deadline) if terminal.on_terminal(sys.stdout) else str(deadline))


def unpin(session: options.Session, socket: options.Socket = None) -> None:
    """Keep a session's KV no longer than that of others."""
    with options.reach(session, socket) as (client, id_):
        client.ask(requests.Pin(id_, 0), responses.Pinned)
