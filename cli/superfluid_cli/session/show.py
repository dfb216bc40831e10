"""`superfluid session show`"""

from __future__ import annotations

import sys

from superfluid.protocol import requests, responses
from superfluid_cli import events, options, tables, terminal, values
from superfluid_cli.reply import ending


def show(session: options.Session, json: options.Json = False, socket: options.Socket = None) -> None:
    """Show everything about a session: its state, then its events. With --json, one object."""
    with options.reach(session, socket) as (client, id_):
        inspection = client.ask(requests.Inspect(id_), responses.Inspection).inspection
    if json:
        terminal.line(_pretty(inspection))
        return
    tables.show_facts(_facts(inspection))
    if terminal.on_terminal(sys.stdout):
        terminal.line("")
    terminal.lines([events.printed(event, False) for event in inspection.events])


def _pretty(inspection: responses.SessionInspection) -> str:
    import json

    from superfluid.protocol import jsonform

    return json.dumps(jsonform.to_json(responses.SessionInspection, inspection), ensure_ascii=False, indent=2)


def _facts(it: responses.SessionInspection) -> list[tuple[str, str]]:
    """Names and values, in the order of the wire's own text form."""
    about = it.summary
    facts = [
        ("session", str(about.id)),
        ("title", about.title or ""),
        ("parent", "" if about.parent is None else f"{about.parent} at event {about.fork_at}"),
        ("archived", _yes(about.archived)),
        ("sampling", events.params(it.params)),
        ("events", str(about.events)),
        ("tokens", str(about.tokens)),
        ("epoch", str(it.epoch)),
        ("generation", str(about.generation)),
        ("meta_version", str(about.meta_version)),
        ("last_finish", ending(it.last_finish)),
        ("qos", values.qos_name(it.qos_class)),
        ("batch_invariant", _yes(it.batch_invariant)),
        ("pinned", events.moment(it.pin_deadline_unix_ms) if it.pin_deadline_unix_ms else ""),
        ("tier", _tier(it.tier)),
        ("wal", f"v{it.wal_version}"),
        ("behavior_fingerprint", "" if it.behavior_fingerprint is None else f"{it.behavior_fingerprint:016x}"),
        ("store_id", "" if it.store_id is None else it.store_id.value.hex()),
    ]
    facts += [(f"tool call {call}", f"{name} {arguments}") for call, name, arguments in it.open_tool_calls]
    return [(name, value) for name, value in facts if value]


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _tier(tier: responses.Tier) -> str:
    match tier:
        case responses.Resident():
            return "resident: generating"
        case responses.Parked(covered=covered):
            return f"parked, {covered} tokens"
        case responses.Cold():
            return "cold: neither generating nor parked on disk"
