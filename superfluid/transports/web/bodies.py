"""The body of a request: its kind, its size, its JSON, its meaning, in that order (decision 10)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from starlette.datastructures import Headers
from starlette.types import Receive, Scope

from superfluid.protocol.errors import DecodeError
from superfluid.transports.http import body
from superfluid.transports.http.errors import ApiError
from superfluid.transports.web.refusals import Refused

_T = TypeVar("_T")


async def read(scope: Scope, receive: Receive, meaning: Callable[[Any], _T]) -> _T:
    """What `meaning` makes of the JSON. Raises Refused 415, 413, 408, 503, 400, 422 and `body.Gone`."""
    headers = Headers(scope=scope)
    kinds = headers.getlist("content-type")
    if not kinds or not all(body.is_json(kind) for kind in kinds):
        raise Refused(415, "content-type: expected application/json")
    try:
        body.check_length(headers)
        return await body.understood(await body.read(scope, receive), lambda data: _understood(data, meaning))
    except ApiError as fault:
        raise Refused(fault.status, str(fault), fault.headers) from None


def _understood(data: bytes | bytearray, meaning: Callable[[Any], _T]) -> _T:
    value = body.decode(data)
    try:
        return meaning(value)
    except DecodeError as fault:
        raise Refused(422, f"not a request: {fault}") from None
