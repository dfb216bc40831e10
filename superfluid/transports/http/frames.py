"""Server-sent events: their headers, their frames, and how they are said."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from starlette.types import Receive, Scope, Send

HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]

DONE = b"data: [DONE]\n\n"
"""How OpenAI's streams end."""

STILL_HERE = b":\n\n"
"""A comment, which clients pass over."""


def frame(content: dict[str, Any], event: str | None = None) -> bytes:
    """One event. With its name, where it has one; some clients want the space after each colon."""
    data = b"data: " + json.dumps(content, ensure_ascii=True, separators=(",", ":")).encode() + b"\n\n"
    return data if event is None else b"event: " + event.encode() + b"\n" + data


async def say(send: Send, data: bytes, *, last: bool = False) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": not last})


@dataclass(frozen=True, slots=True)
class End:
    """The last frames of a stream, as an ASGI application."""

    frames: bytes

    async def __call__(self, _: Scope, __: Receive, send: Send) -> None:
        await say(send, self.frames, last=True)
