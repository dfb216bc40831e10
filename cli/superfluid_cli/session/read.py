"""`superfluid session read`"""

from __future__ import annotations

from superfluid_cli import events, options, terminal


def read(
    session: options.Session,
    cursor: options.Cursor = 0,
    json: options.Json = False,
    socket: options.Socket = None,
) -> None:
    """Print a session's log. In a pipe: id, Unix time in ms, record, details, text; with --json, one event a line."""
    with options.reach(session, socket) as (client, id_):
        log = client.read(id_, cursor)
    terminal.lines([events.printed(event, json) for event in log])
