"""The body of a request: its kind, its size, its JSON, its meaning, in that order (decision 10)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import trio
from starlette.datastructures import Headers
from starlette.types import Receive

from superfluid.protocol.errors import DecodeError
from superfluid.transports.http import body
from superfluid.transports.http.errors import ApiError
from superfluid.transports.web.refusals import Refused

_T = TypeVar("_T")


async def read(headers: Headers, receive: Receive, meaning: Callable[[Any], _T]) -> _T:
    """What `meaning` makes of the JSON. Raises Refused 415, 413, 408, 400, 422 and `body.Gone`."""
    kinds = headers.getlist("content-type")
    if not kinds or not all(body.is_json(kind) for kind in kinds):
        raise Refused(415, "content-type: expected application/json")
    length = headers.get("content-length")
    try:
        if length is not None and length.isdigit() and int(length) > body.MOST_BYTES:
            raise body.too_large()
        data = await body.read(receive)
        if len(data) < body.THREADED:
            return _understood(data, meaning)
        return await trio.to_thread.run_sync(_understood, data, meaning)
    except ApiError as fault:
        raise Refused(fault.status, str(fault)) from None


def _understood(data: bytes, meaning: Callable[[Any], _T]) -> _T:
    value = body.decode(data)
    try:
        return meaning(value)
    except DecodeError as fault:
        raise Refused(422, f"not a request: {fault}") from None
