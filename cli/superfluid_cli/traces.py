"""A session's log as one OpenTelemetry trace in OTLP's JSON form: the session, its generations, their tool calls.

Ids are digests of what they stand for, so that an export made again is the same trace. Names of attributes are those
of OpenTelemetry's conventions for generative AI, where it has one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from superfluid import __version__
from superfluid.protocol import records
from superfluid.protocol.codes import Channel, Finish, Role, ToolOutcomeCode
from superfluid_cli.disclosure import Disclosure
from superfluid_cli.redaction import redact

_INTERNAL, _CLIENT = 1, 3
_ERROR = 2
_ROLES = {Role.SYSTEM: "system", Role.USER: "user", Role.ASSISTANT: "assistant", Role.TOOL: "tool"}
_REASONS = {
    Finish.END_OF_TURN: "stop",
    Finish.LENGTH: "length",
    Finish.GRAMMAR: "stop",
    Finish.CANCELLED: "cancelled",
}
_WITHIN = (records.Generated, records.ToolUse, records.ToolLease, records.ToolParseFailure)
"""Records that may stand in a generation without ending it."""


def trace(session: int, events: Sequence[records.Event], content: bool, model: str | None) -> str:
    """One line: a request to export one trace."""
    spans = _Spans(session, events, Disclosure(events, content), model)
    scope = {"scope": {"name": "superfluid", "version": __version__}, "spans": spans.all()}
    resource = {"attributes": [_attribute("service.name", "superfluid")]}
    request = {"resourceSpans": [{"resource": resource, "scopeSpans": [scope]}]}
    return json.dumps(request, ensure_ascii=False)


@dataclass
class _Generation:
    """What was drawn in one go. `opened` is the event that began it."""

    opened: records.Event
    pieces: list[records.Event] = field(default_factory=list)

    @property
    def finish(self) -> int:
        body = self.pieces[-1].body if self.pieces else None
        return body.finish if isinstance(body, records.Generated) else Finish.OPEN


class _Spans:
    def __init__(self, session: int, events: Sequence[records.Event], texts: Disclosure, model: str | None) -> None:
        self._session = session
        self._events = events
        self._texts = texts
        self._model = model
        born = events[0].ts_unix_ms if events else 0
        self._trace = hashlib.blake2b(f"{session} {born}".encode(), digest_size=16).hexdigest()
        self._root = self._id("session", 0)

    def all(self) -> list[dict[str, Any]]:
        generations = _generations(self._events)
        makers = {piece.event_id: one for one in generations for piece in one.pieces}
        spans = [self._of_session(), *(self._of_generation(one) for one in generations)]
        maker: _Generation | None = None
        for event in self._events:
            maker = makers.get(event.event_id, maker)
            if isinstance(event.body, records.ToolUse):
                parent = self._root if maker is None else self._id("generate", maker.opened.event_id)
                spans.append(self._of_call(event, event.body, parent))
        return spans

    def _of_session(self) -> dict[str, Any]:
        about = {"superfluid.session.id": self._session, "gen_ai.conversation.id": str(self._session)}
        about["superfluid.session.events"] = len(self._events)
        params = _params(self._events)
        if params is not None:
            about |= {
                "gen_ai.request.temperature": params.temperature,
                "gen_ai.request.top_p": params.top_p,
                "gen_ai.request.top_k": params.top_k,
                "gen_ai.request.seed": str(params.seed),
            }
        span = self._span("session", self._root, None, self._events[:1], self._events[-1:], about)
        said = [event for event in self._events if isinstance(event.body, records.Message)]
        span["events"] = [
            self._message(event, event.body) for event in said if isinstance(event.body, records.Message)
        ]
        return span

    def _message(self, event: records.Event, body: records.Message) -> dict[str, Any]:
        about: dict[str, Any] = {"superfluid.event_id": event.event_id, "superfluid.tokens": len(body.span)}
        about |= self._text("content", body.text)
        role = _ROLES.get(Role(body.role), "unknown") if body.role in list(Role) else "unknown"
        name = f"gen_ai.{role}.message"
        return {"timeUnixNano": _nano(event), "name": name, "attributes": _attributes(about)}

    def _of_generation(self, one: _Generation) -> dict[str, Any]:
        about: dict[str, Any] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.usage.output_tokens": sum(len(records.span_of(piece.body)) for piece in one.pieces),
            "gen_ai.response.finish_reasons": [_REASONS.get(Finish(one.finish), "open")],
            "superfluid.finish": one.finish,
        }
        for name, channel in (("text", Channel.TEXT), ("reasoning", Channel.REASONING)):
            pieces = [piece for piece in one.pieces if getattr(piece.body, "channel", None) == channel]
            if self._texts.content and pieces:
                about[f"superfluid.output.{name}"] = self._texts.whole(pieces)
        ended = one.pieces[-1:] or [one.opened]
        ident = self._id("generate", one.opened.event_id)
        span = self._span("generate", ident, self._root, [one.opened], ended, about)
        return _failed(span) if one.finish == Finish.ERROR else span

    def _of_call(self, event: records.Event, body: records.ToolUse, parent: str) -> dict[str, Any]:
        about: dict[str, Any] = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": redact(body.name),
            "gen_ai.tool.call.id": str(event.event_id),
        }
        about |= self._text("gen_ai.tool.call.arguments", body.arguments)
        end, failed = self._events[-1], False
        for later in self._events:
            match later.body:
                case records.ToolResult(call_id=event.event_id, content=result):
                    about |= self._text("gen_ai.tool.call.result", result)
                    end = later
                    break
                case records.ToolOutcome(call_id=event.event_id, outcome=code):
                    end, failed = later, code == ToolOutcomeCode.FAILED
                    break
                case records.ToolExpired(call_id=event.event_id):
                    end, failed = later, True
                    break
        span = self._span("tool_use", self._id("tool_use", event.event_id), parent, [event], [end], about)
        return _failed(span) if failed else span

    def _text(self, name: str, text: str) -> dict[str, Any]:
        shown = self._texts.shown(text)
        return {name: shown} if isinstance(shown, str) else {f"{name}.bytes": shown["bytes"]}

    def _span(
        self,
        name: str,
        ident: str,
        parent: str | None,
        first: Sequence[records.Event],
        last: Sequence[records.Event],
        about: dict[str, Any],
    ) -> dict[str, Any]:
        if self._model is not None and name != "tool_use":
            about["gen_ai.request.model"] = self._model
        return {
            "traceId": self._trace,
            "spanId": ident,
            **({"parentSpanId": parent} if parent is not None else {}),
            "name": name,
            "kind": _CLIENT if name == "generate" else _INTERNAL,
            "startTimeUnixNano": _nano(first[0]) if first else "0",
            "endTimeUnixNano": _nano(last[0]) if last else "0",
            "attributes": _attributes(about),
        }

    def _id(self, kind: str, event: int) -> str:
        return hashlib.blake2b(f"{self._trace} {kind} {event}".encode(), digest_size=8).hexdigest()


def _generations(events: Sequence[records.Event]) -> list[_Generation]:
    found: list[_Generation] = []
    current: _Generation | None = None
    for event in events:
        match event.body:
            case records.GenerationPrompt():
                found.append(current := _Generation(event))
            case records.Generated(finish=finish):
                if current is None:
                    found.append(current := _Generation(event))
                current.pieces.append(event)
                if finish != Finish.OPEN:
                    current = None
            case body if not isinstance(body, _WITHIN):
                current = None
    return [one for one in found if one.pieces]


def _params(events: Sequence[records.Event]) -> records.GenParams | None:
    """The sampling parameters that the last record about them sets."""
    found = [event.body.params for event in events if hasattr(event.body, "params")]
    return found[-1] if found else None


def _failed(span: dict[str, Any]) -> dict[str, Any]:
    return {**span, "status": {"code": _ERROR}}


def _nano(event: records.Event) -> str:
    return str(event.ts_unix_ms * 1_000_000)


def _attributes(values: dict[str, Any]) -> list[dict[str, Any]]:
    return [_attribute(name, value) for name, value in values.items()]


def _attribute(name: str, value: Any) -> dict[str, Any]:
    return {"key": name, "value": _value(value)}


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, list):
        return {"arrayValue": {"values": [_value(part) for part in value]}}
    if isinstance(value, int):
        return {"intValue": str(int(value))}
    if isinstance(value, float):
        return {"doubleValue": value}
    return {"stringValue": str(value)}
