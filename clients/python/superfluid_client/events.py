"""Committed events of a session's log, and what they say when folded into messages."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Union

from superfluid_client.codes import REASONING, ROLE_NAMES, TEXT, name_of


@dataclass(frozen=True)
class Event:
    """One record of the log. `kind` is its name, such as "Message", and `data` its fields."""

    id: int
    kind: str
    data: dict[str, Any] = field(hash=False)
    ts_ms: int = 0
    epoch: int = 0

    @classmethod
    def from_wire(cls, event: Mapping[str, Any]) -> Event:
        """From its JSON form; a record without fields is a bare name there."""
        body = event["body"]
        if isinstance(body, str):
            kind, data = body, {}
        else:
            ((kind, data),) = body.items()
        return cls(event["event_id"], kind, data, event["ts_unix_ms"], event["epoch"])

    @property
    def text(self) -> str:
        """The text of a record that has one, else nothing."""
        return self.data.get("text") or ""

    @property
    def channel(self) -> int:
        """The channel of generated text; TEXT for every other record."""
        return int(self.data.get("channel", TEXT))


EventOrId = Union[Event, int]


def id_of(event: EventOrId) -> int:
    """The id of an event given as itself or by its id."""
    return event.id if isinstance(event, Event) else event


@dataclass(frozen=True)
class ToolCall:
    """A call that the model made; `arguments` is the JSON text it wrote."""

    id: int
    name: str
    arguments: str

    @classmethod
    def of(cls, event: Event) -> ToolCall:
        """The call that a `ToolUse` event records: its id is the event's."""
        return cls(event.id, event.data["name"], event.data["arguments"])

    def json(self) -> Any:
        """The arguments, parsed."""
        return json.loads(self.arguments)


def fold(events: Iterable[Event]) -> list[dict[str, Any]]:
    """The messages that a log spells, each a dict with its `role` and the id of the first `event` it came from.

    Generated text folds into one assistant message until a finish closes it or something else is said, so a reply
    that was cut with a finish and continued is two messages. What the model thought is under `reasoning`.
    """
    messages: list[dict[str, Any]] = []
    reply: dict[str, Any] | None = None
    for event in events:
        if event.kind == "Generated":
            if reply is None:
                reply = {"role": "assistant", "content": "", "event": event.id}
                messages.append(reply)
            if event.channel == REASONING:
                reply["reasoning"] = reply.get("reasoning", "") + event.text
            else:
                reply["content"] += event.text
            if event.data["finish"]:
                reply = None
        elif event.kind == "Message":
            reply = None
            role = name_of(event.data["role"], ROLE_NAMES)
            messages.append({"role": role, "content": event.text, "event": event.id})
        elif event.kind == "ToolUse":
            call = ToolCall.of(event)
            messages.append({"role": "tool_call", "name": call.name, "arguments": call.arguments, "event": event.id})
        elif event.kind == "ToolResult":
            reply = None
            result = {key: event.data[key] for key in ("call_id", "content")}
            messages.append({"role": "tool", **result, "event": event.id})
        elif event.kind == "GenerationPrompt":
            reply = None
    return messages
