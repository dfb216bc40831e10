"""A session's log as JSON lines for export: an object an event, tokens counted, texts as far as is disclosed."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any

from superfluid.protocol import records
from superfluid_cli.disclosure import Disclosure
from superfluid_cli.redaction import redact

_OPEN = {("Named", "name"), ("ToolUse", "name"), ("ToolExpired", "reason")}
"""Words that are no content: what sessions and tools are called, and what the daemon says itself."""

_PIECES = (records.Generated, records.Appended)
_COUNTED = {"span": "tokens", "head": "head_tokens", "prefix": "prefix_events", "edits": "edits"}


def lines(session: int, events: Sequence[records.Event], content: bool) -> Iterator[str]:
    """One line an event."""
    texts = Disclosure(events, content)
    for event in events:
        yield json.dumps(
            {
                "session": session,
                "event_id": event.event_id,
                "epoch": event.epoch,
                "ts_unix_ms": event.ts_unix_ms,
                "event": {"type": snake(type(event.body).__name__), **_fields(event.body, event, texts)},
            },
            ensure_ascii=False,
        )


def snake(name: str) -> str:
    """`ToolUse` as `tool_use`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def _fields(record: Any, event: records.Event, texts: Disclosure) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for field in dataclasses.fields(record):
        value, name = getattr(record, field.name), field.name.rstrip("_")
        if field.name in _COUNTED:
            fields[_COUNTED[field.name]] = len(value)
        elif isinstance(value, str):
            if isinstance(record, _PIECES):
                fields[name] = texts.piece(event, 0, value)
            elif (type(record).__name__, field.name) in _OPEN:
                fields[name] = redact(value)
            else:
                fields[name] = texts.shown(value)
        elif field.name == "entries":
            fields[name] = [
                {"text": texts.piece(event, place, entry.text), "tokens": len(entry.span)}
                for place, entry in enumerate(value)
            ]
        elif field.name == "digest":
            fields[name] = f"{value:016x}"
        else:
            fields[name] = _plain(value, event, texts)
    return fields


def _plain(value: Any, event: records.Event, texts: Disclosure) -> Any:
    if isinstance(value, Enum):
        return value.name.lower() if not isinstance(value, int) else int(value)
    if dataclasses.is_dataclass(value):
        return _fields(value, event, texts)
    if isinstance(value, tuple | list):
        return [texts.shown(part) if isinstance(part, str) else _plain(part, event, texts) for part in value]
    return value
