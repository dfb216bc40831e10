"""`superfluid session tools`, `ledger`, `result`, `outcome`, `cancel-call`: the tool calls that a model made."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from superfluid.protocol import requests, responses
from superfluid.protocol.codes import LedgerState, ToolOutcomeCode
from superfluid_cli import events, options, tables, terminal
from superfluid_cli.message import message, raw_text

_OPEN = ("call", "tool", "arguments")
_ALL = ("call", "tool", "state", "lease", "late", "arguments")
_OUTCOMES = {code.name.lower(): code for code in ToolOutcomeCode}


def _outcome(text: str) -> int:
    if text.lower() not in _OUTCOMES:
        raise ValueError(f"expected {' or '.join(_OUTCOMES)}, got {text!r}")
    return _OUTCOMES[text.lower()]


def tools(session: options.Session, json: options.Json = False, socket: options.Socket = None) -> None:
    """List the tool calls that wait for a result: call, tool, arguments. With --json, one object a line."""
    with options.reach(session, socket) as (client, id_):
        calls = client.ask(requests.OpenToolCalls(id_), responses.ToolCalls).calls
    if json:
        _print_json([{"call_id": call, "name": name, "arguments": arguments} for call, name, arguments in calls])
    else:
        tables.show_table(_OPEN, [(str(call), name, text) for call, name, text in calls], flexible=("arguments",))


def ledger(session: options.Session, json: options.Json = False, socket: options.Socket = None) -> None:
    """List all tool calls of a session and how each stands: call, tool, state, when its lease ends, results that came
    too late, arguments. With --json, one object a line."""
    with options.reach(session, socket) as (client, id_):
        entries = client.ask(requests.Ledger(id_), responses.Ledger).entries
    if json:
        from superfluid.protocol import jsonform

        _print_json([{"call_id": call, **jsonform.to_json(responses.LedgerEntry, entry)} for call, entry in entries])
    else:
        tables.show_table(_ALL, [_row(call, entry) for call, entry in entries], flexible=("arguments",))


def result(
    session: options.Session,
    call: options.CallId,
    text: options.Text = None,
    file: options.File = None,
    socket: options.Socket = None,
) -> None:
    """Answer a tool call, and print the new event's id. `session generate` goes on from there."""
    content = message(text, file)
    with options.reach(session, socket) as (client, id_):
        reply = client.ask(requests.AppendToolResult(id_, call, content), responses.Committed)
    terminal.line(str(reply.event.event_id))


def outcome(
    session: options.Session,
    call: options.CallId,
    how: Annotated[int, typer.Argument(metavar="OUTCOME", parser=_outcome, help="failed or cancelled.")],
    note: Annotated[str, typer.Argument(metavar="NOTE", help="What happened, for the log.", show_default=False)] = "",
    socket: options.Socket = None,
) -> None:
    """End a tool call without a result, and print the new event's id. The model sees nothing of it."""
    words = raw_text(note, None) if note else ""
    with options.reach(session, socket) as (client, id_):
        reply = client.ask(requests.AppendToolOutcome(id_, call, how, words), responses.Committed)
    terminal.line(str(reply.event.event_id))


def cancel_call(session: options.Session, call: options.CallId, socket: options.Socket = None) -> None:
    """Ask whoever runs a tool call to stop it, and print the new event's id. The call stays open."""
    with options.reach(session, socket) as (client, id_):
        reply = client.ask(requests.RequestToolCancel(id_, call), responses.Committed)
    terminal.line(str(reply.event.event_id))


def _row(call: int, entry: responses.LedgerEntry) -> tuple[str, ...]:
    lease = "" if entry.lease_deadline_unix_ms is None else events.moment(entry.lease_deadline_unix_ms)
    late = str(entry.late_effects) if entry.late_effects else ""
    return (str(call), entry.name, _state(entry), lease, late, entry.arguments)


def _state(entry: responses.LedgerEntry) -> str:
    try:
        word = LedgerState(entry.state).name.lower().replace("_", " ")
    except ValueError:
        return str(entry.state)
    asked = entry.cancel_requested and entry.state != LedgerState.CANCEL_REQUESTED
    return f"{word}, cancel requested" if asked else word


def _print_json(objects: list[dict[str, Any]]) -> None:
    import json

    terminal.lines([json.dumps(each, ensure_ascii=False) for each in objects])
