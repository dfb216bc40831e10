"""`superfluid session watch`"""

from __future__ import annotations

from typing import Annotated

import typer

from superfluid.protocol import responses
from superfluid_cli import events, options, terminal
from superfluid_cli.client import Client
from superfluid_cli.interrupt import Alert

Provisional = Annotated[
    bool, typer.Option("--provisional", help="Text ahead of its commit, too; it may be drawn again after a crash.")
]


def watch(
    session: options.Session,
    cursor: options.Cursor = 0,
    provisional: Provisional = False,
    json: options.Json = False,
    socket: options.Socket = None,
) -> None:
    """Print a session's events from event N on, then new ones as they are committed, until Ctrl-C."""
    with options.reach(session, socket) as (client, id_), Alert(client):
        ended = ""
        while ended in ("", "lagged"):  # a reader too slow for the daemon's queue starts again where it was
            cursor, ended = _follow(client, id_, cursor, provisional, json)
    terminal.note(f"session {session}: {events.why_over(ended)}")


def _follow(client: Client, session: int, cursor: int, provisional: bool, json: bool) -> tuple[int, str]:
    """Print until the subscription ends; the next event to ask for, and why it ended."""
    for message in client.subscribe(session, cursor, provisional):
        match message:
            case responses.SubEvent(event=event):
                terminal.line(events.printed(event, json))
                cursor = event.event_id + 1
            case responses.SubProvisional(channel=channel, text=text):
                terminal.line(events.provisional(channel, text, json))
            case responses.SubEnded(reason=reason):
                return cursor, reason
    raise AssertionError("a subscription ends with SubEnded")
