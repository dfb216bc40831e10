"""Requests that are refused before the daemon hears of them: a status, and `Err` as the body (decision 10)."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import Response as Reply
from starlette.types import Send

from superfluid.protocol import jsonform, responses
from superfluid.protocol.responses import Response


class Refused(Exception):
    """`str()` is the message of the `Err`."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.headers = dict(headers or {})

    @property
    def body(self) -> bytes:
        return encoded(responses.Err(str(self)))


def encoded(response: Response) -> bytes:
    """A response as JSON."""
    return jsonform.dumps(Response, response).encode()


def spelled(status: int, message: str, _: str) -> Reply:
    """The reply to what is no request at all; see `http11.Spelling`."""
    return Reply(encoded(responses.Err(message)), status, media_type="application/json")


async def say(
    send: Send, status: int, body: bytes, headers: Mapping[str, str] | None = None, *, prefix: str = "http"
) -> None:
    """A whole reply. `prefix` is `websocket.http` where a WebSocket was asked for."""
    fields = {"content-length": str(len(body)), **(headers or {})}
    if body:
        fields["content-type"] = "application/json"
    raw = [(name.encode(), value.encode()) for name, value in fields.items()]
    await send({"type": f"{prefix}.response.start", "status": status, "headers": raw})
    await send({"type": f"{prefix}.response.body", "body": body, "more_body": False})
