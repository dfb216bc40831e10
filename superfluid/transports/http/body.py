"""The body of a request: read within bounds, decoded, and one JSON object."""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

import trio
from starlette.types import Receive

from superfluid.transports.http.errors import ApiError
from superfluid.transports.http.fields import Fields

MOST_BYTES = 64 << 20
"""Bytes of a body, as of a frame on the socket."""

THREADED = 1 << 16
"""Bytes of a body from which on it is parsed in a thread."""

STALLED = 60.0
"""Seconds that a client may leave between two pieces of its body."""


class Gone(Exception):
    """The client left before its request was complete."""


async def read(receive: Receive) -> bytes:
    """The whole body. Raises ApiError 413 past `MOST_BYTES` and 408 where it does not come, and Gone."""
    pieces: list[bytes] = []
    size = 0
    while True:
        with trio.move_on_after(STALLED) as waiting:
            message = await receive()
        if waiting.cancelled_caught:
            raise ApiError(f"the rest of the body did not come for {STALLED:g} seconds", status=408, code="timeout")
        if message["type"] != "http.request":
            raise Gone
        pieces.append(message.get("body", b""))
        size += len(pieces[-1])
        if size > MOST_BYTES:
            raise too_large()
        if not message.get("more_body", False):
            return b"".join(pieces)


async def fields(receive: Receive, *, optional: bool = False) -> Fields:
    """The JSON object that the body spells; with `optional`, no body is an empty one. Raises ApiError, and Gone."""
    data = await read(receive)
    if optional and not data:
        return Fields({})
    return parse(data) if len(data) < THREADED else await trio.to_thread.run_sync(parse, data)


def too_large() -> ApiError:
    return ApiError(f"the body has more than {MOST_BYTES >> 20} MiB", status=413, code="body_too_large")


_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
"""Half of a surrogate pair, as JSON can spell it."""


def parse(data: bytes) -> Fields:
    """The JSON object that a body spells. Half a surrogate pair in it, which no text has, is U+FFFD.

    Raises ApiError 400.
    """
    value = decode(data)
    if _HALF.search(data):
        try:
            value = _without_halves(value)
        except RecursionError:
            raise _not_json("it is nested too deep") from None
    if not isinstance(value, dict):
        raise ApiError("the body is not a JSON object", code="invalid_json")
    return Fields(value)


def decode(data: bytes) -> Any:
    """What a body spells in JSON. Raises ApiError 400."""
    try:
        return json.loads(data.decode("utf-8-sig"), parse_constant=_no_number)
    except UnicodeDecodeError as fault:
        raise _not_json(f"byte {fault.start} is not UTF-8") from None
    except json.JSONDecodeError as fault:
        raise _not_json(f"{fault.msg} at character {fault.pos}") from None
    except RecursionError:
        raise _not_json("it is nested too deep") from None
    except ValueError as fault:
        # What Python says of a number with thousands of digits names settings of Python.
        raise _not_json(str(fault) if isinstance(fault, _NoNumber) else "a number has too many digits") from None


def _without_halves(value: Any) -> Any:
    match value:
        case str():
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        case list():
            return [_without_halves(one) for one in value]
        case dict():
            return {_without_halves(name): _without_halves(one) for name, one in value.items()}
    return value


class _NoNumber(ValueError):
    """NaN or Infinity, which Python reads and JSON does not have."""


def _no_number(name: str) -> NoReturn:
    raise _NoNumber(f"{name} is no JSON")


def _not_json(reason: str) -> ApiError:
    return ApiError(f"the body is not JSON: {reason}", code="invalid_json")


def is_json(content_type: str) -> bool:
    """Whether a content type is JSON's."""
    kind = content_type.partition(";")[0].strip().lower()
    return re.fullmatch(r"application/([\w.!#$&^-]+\+)?json", kind) is not None
