"""Events of a session's log as lines: for people on a terminal, tab-separated in a pipe, or JSON."""

from __future__ import annotations

import dataclasses
import sys
import time
from typing import Any

from superfluid.protocol import records
from superfluid.protocol.codes import Channel, Role
from superfluid_cli import terminal, values
from superfluid_cli.counting import counted
from superfluid_cli.reply import ending

_TEXTS = ("text", "content", "raw", "payload", "note", "arguments", "reason", "query", "value")


def detail(body: Any) -> str:
    """The fields of a record but its text, short: tokens are counted, numbers with names get them."""
    parts = []
    for field in dataclasses.fields(body):
        value = getattr(body, field.name)
        name = field.name.rstrip("_")
        if field.name in _TEXTS:
            continue
        if field.name == "span":
            parts.append(counted(len(value), "token"))
        elif field.name == "head":
            parts.append(f"{counted(len(value), 'token')} of framing")
        elif field.name == "entries":
            parts.append(counted(len(value), "entry", "entries"))
            parts.append(counted(sum(len(entry.span) for entry in value), "token"))
        elif field.name == "erased":
            parts.append(f"{counted(len(value), 'entry', 'entries')} of {counted(sum(value), 'token')} erased")
        elif field.name == "confidence":
            parts.append(f"confidence {value:.3f}")
        elif field.name in ("prefix", "edits"):
            parts.append(counted(len(value), "event" if field.name == "prefix" else "edit"))
        elif field.name == "role":
            parts.append(_name(Role, value))
        elif field.name == "channel":
            parts.append(_name(Channel, value))
        elif field.name == "finish":
            parts.append(ending(value))
        elif field.name == "class_":
            parts.append(values.qos_name(value))
        elif field.name == "digest":
            parts.append(f"{value:016x}")
        elif field.name == "descendants":
            parts.append(value.value.lower())
        elif isinstance(value, records.GenParams):
            parts.append(params(value))
        elif isinstance(value, bool):
            parts.append(f"{name} {'yes' if value else 'no'}")
        elif value is not None:
            parts.append(f"{name} {terminal.shown(str(value))}")
    return ", ".join(parts)


def text_of(body: Any) -> str:
    """What a record says in words, empty for records that say nothing."""
    for name in _TEXTS:
        value = getattr(body, name, None)
        if isinstance(value, str):
            return value
    if isinstance(body, records.Ingested | records.Erased):
        return "\n".join(entry.text for entry in body.entries)
    return ""


def params(value: records.GenParams) -> str:
    return (
        f"temperature {value.temperature:g} top_p {value.top_p:g} min_p {value.min_p:g} "
        f"top_k {value.top_k} seed {value.seed}"
    )


def moment(unix_ms: int) -> str:
    """A time in the user's own zone."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(unix_ms / 1000))
    except (OverflowError, ValueError, OSError):
        return str(unix_ms)


def row(event: records.Event) -> str:
    """Tab-separated: id, Unix time in milliseconds, record, details, text. Every field on one line."""
    body = event.body
    fields = (str(event.event_id), str(event.ts_unix_ms), type(body).__name__, detail(body))
    return "\t".join((*fields, terminal.shown(text_of(body))))


def block(event: records.Event) -> str:
    """A heading and, under it, the text."""
    body = event.body
    head = f"#{event.event_id} {type(body).__name__}"
    about = ", ".join(part for part in (detail(body), moment(event.ts_unix_ms)) if part)
    text = terminal.safe(text_of(body))
    heading = f"{_bold(head)}  {terminal.dim(about, sys.stdout)}"
    return heading + ("\n" + "\n".join(f"  {line}" for line in text.split("\n")) if text else "")


def json_line(event: records.Event) -> str:
    from superfluid.protocol import jsonform

    return jsonform.dumps(records.Event, event)


def printed(event: records.Event, as_json: bool) -> str:
    """The form that suits stdout."""
    if as_json:
        return json_line(event)
    return block(event) if terminal.on_terminal(sys.stdout) else row(event)


def provisional(channel: int, text: str, as_json: bool) -> str:
    """Text that runs ahead of its commit: it has no id yet."""
    if as_json:
        import json

        return json.dumps({"provisional": {"channel": channel, "text": text}}, ensure_ascii=False)
    if terminal.on_terminal(sys.stdout):
        return terminal.dim(f"  ~ {terminal.shown(text)}", sys.stdout)
    return f"~\t{_name(Channel, channel)}\t{terminal.shown(text)}"


def why_over(reason: str) -> str:
    """Why a subscription ended, in words for people."""
    return "the daemon has stopped" if reason == "publisher closed" else terminal.shown(reason)


def _bold(text: str) -> str:
    return f"\x1b[1m{text}\x1b[0m" if terminal.colourful(sys.stdout) else text


def _name(codes: Any, value: int) -> str:
    try:
        return str(codes(value).name).lower().replace("_", " ")
    except ValueError:
        return str(value)
