"""`superfluid session list`"""

from __future__ import annotations

from typing import Annotated

import typer

from superfluid.protocol import requests, responses
from superfluid_cli import options, tables, terminal

_HEADINGS = ("id", "parent", "title", "events", "tokens", "state")


def list_sessions(
    all_: Annotated[bool, typer.Option("--all", "-a", help="Archived ones too.")] = False,
    json: options.Json = False,
    socket: options.Socket = None,
) -> None:
    """List the sessions: id, parent, title, events, tokens, state. With --json, one object a line."""
    with options.connect(socket) as client:
        sessions = client.ask(requests.Sessions(all_), responses.SessionList).sessions
    if json:
        from superfluid.protocol import jsonform

        terminal.lines([jsonform.dumps(responses.SessionSummary, entry) for entry in sessions])
    else:
        tables.show_table(_HEADINGS, [_row(entry) for entry in sessions], flexible="title")


def _row(entry: responses.SessionSummary) -> tuple[str, ...]:
    parent = f"{entry.parent}@{entry.fork_at}" if entry.parent is not None else ""
    calls = f"{entry.open_tool_calls} open tool calls" if entry.open_tool_calls else ""
    state = ", ".join(word for word in ("archived" if entry.archived else "", calls) if word)
    return (str(entry.id), parent, entry.title or "", str(entry.events), str(entry.tokens), state)
