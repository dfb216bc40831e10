"""What a daemon says, in its JSON form."""

from __future__ import annotations

from typing import Any

PARAMS = {"temperature": 0.5, "top_p": 0.9, "min_p": 0.1, "top_k": 3, "seed": 11}


def event(id: int, kind: str, **fields: Any) -> dict[str, Any]:
    return {"event_id": id, "epoch": 1, "ts_unix_ms": 1000 + id, "body": {kind: fields} if fields else kind}


def message(id: int, role: int, text: str) -> dict[str, Any]:
    return event(id, "Message", role=role, text=text, span=[1])


def generated(id: int, text: str, *, channel: int = 0, finish: int = 0) -> dict[str, Any]:
    return event(id, "Generated", span=[1], text=text, channel=channel, finish=finish)


def tool_use(id: int, name: str = "get_weather", arguments: str = '{"city": "Paris"}') -> dict[str, Any]:
    return event(id, "ToolUse", name=name, arguments=arguments)


def committed(event: dict[str, Any]) -> dict[str, Any]:
    return {"committed": event}


def ahead(text: str, channel: int = 0) -> dict[str, Any]:
    return {"provisional": {"channel": channel, "text": text}}


def done(finish: int = 1, tokens: int = 3, warm: int = 7) -> dict[str, Any]:
    return {"done": {"tokens_generated": tokens, "finish": finish, "warm_prefix": warm}}


def inspection(**summary: Any) -> dict[str, Any]:
    return {"Inspection": {"inspection": {"summary": {"id": 1, **summary}, "params": PARAMS}}}
