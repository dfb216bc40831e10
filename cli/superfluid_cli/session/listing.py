"""`superfluid session list`"""

from __future__ import annotations

from typing import Annotated

import typer

from superfluid.protocol import requests, responses
from superfluid_cli import options, tables, terminal

_HEADINGS = ("id", "parent", "title", "events", "tokens", "state", "name")


def list_sessions(
    all_: Annotated[bool, typer.Option("--all", "-a", help="Archived ones too.")] = False,
    json: options.Json = False,
    socket: options.Socket = None,
) -> None:
    """List the sessions: id, parent, title, events, tokens, state, name. With --json, one object a line."""
    with options.connect(socket) as client:
        sessions = client.ask(requests.Sessions(all_), responses.SessionList).sessions
        names = dict(client.ask(requests.Names(), responses.Names).names)
    if json:
        terminal.lines([_json(entry, names.get(entry.id)) for entry in sessions])
    else:
        tables.show_table(
            _HEADINGS, [_row(entry, names.get(entry.id, "")) for entry in sessions], flexible=("title", "name")
        )


def _json(entry: responses.SessionSummary, name: str | None) -> str:
    import json

    from superfluid.protocol import jsonform

    return json.dumps({**jsonform.to_json(responses.SessionSummary, entry), "name": name}, ensure_ascii=False)


def _row(entry: responses.SessionSummary, name: str) -> tuple[str, ...]:
    parent = f"{entry.parent}@{entry.fork_at}" if entry.parent is not None else ""
    calls = f"{entry.open_tool_calls} open tool calls" if entry.open_tool_calls else ""
    state = ", ".join(word for word in ("archived" if entry.archived else "", calls) if word)
    return (str(entry.id), parent, entry.title or "", str(entry.events), str(entry.tokens), state, name)
