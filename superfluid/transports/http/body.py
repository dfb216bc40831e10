"""The body of a request: read within bounds, decoded, and one JSON object."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import trio
from starlette.datastructures import Headers
from starlette.types import Receive, Scope

from superfluid.transports.holding import SLOWEST, STALLED, Holding, NoRoom, holding_of
from superfluid.transports.http import codings
from superfluid.transports.http.errors import ApiError
from superfluid.transports.http.fields import Fields
from superfluid.transports.http11 import ask_for_body

MOST_BYTES = 64 << 20
"""Bytes of a body, as of a frame on the socket."""

THREADED = 1 << 16
"""Bytes of a body from which on it is parsed in a thread."""

LONG = 1 << 20
"""Bytes of a body from which on it is parsed alone: meanwhile it takes many times its length."""

MOST_BRACKETS, MOST_COMMAS = 1 << 20, 1 << 23
"""Of a body that is long, counted wherever they stand. Parsed, each of millions of small values takes many times its
length, and while that goes on nothing else does; as part of a text, so many are more than any model takes."""

ROOM_AFTER = "1"
"""Seconds after which there may be room for a body again, as `Retry-After` has it."""

_T = TypeVar("_T")
_ALONE = trio.CapacityLimiter(1)


class Gone(Exception):
    """The client left before its request was complete."""


async def read(scope: Scope, receive: Receive) -> bytes | bytearray:
    """The whole body, unpacked, and counted among those that are held until the request is over.

    Raises ApiError 415 on a coding that is not known, 413 past `MOST_BYTES`, 408 where it does not come, 503 where
    too much is held already, 400 where it cannot be unpacked; and Gone.
    """
    headers, holding = Headers(scope=scope), holding_of(scope)
    coding = codings.packed(headers)
    try:
        holding.announce(_announced(headers))
        await ask_for_body(scope)
        data: bytes | bytearray = await _received(receive, holding)
        if coding is not None:
            data = await trio.to_thread.run_sync(codings.unpacked, data, coding, MOST_BYTES, limiter=_ALONE)
            if len(data) > MOST_BYTES:
                raise too_large()
            holding.resize(len(data))
    except NoRoom:
        raise ApiError(
            "the server is holding too many request bodies; ask again in a moment",
            status=503,
            code="too_many_bodies",
            headers={"retry-after": ROOM_AFTER},
        ) from None
    return data


async def _received(receive: Receive, holding: Holding) -> bytearray:
    """The body as it comes. What was held of one that is refused makes room at once: much of it may still come."""
    data = bytearray()
    try:
        await _receive_into(data, receive, holding)
    except BaseException:
        data.clear()  # the frames of the exception would keep it
        holding.resize(0)
        raise
    return data


async def _receive_into(data: bytearray, receive: Receive, holding: Holding) -> None:
    began = trio.current_time()
    while True:
        latest = began + STALLED + len(data) / SLOWEST
        with trio.move_on_at(min(trio.current_time() + STALLED, latest)) as waiting:
            message = await receive()
        if waiting.cancelled_caught:
            raise ApiError(
                f"the rest of the body did not come: nothing for {STALLED:g} seconds, or less than "
                f"{SLOWEST >> 10} KiB a second",
                status=408,
                code="timeout",
            )
        if message["type"] != "http.request":
            raise Gone
        data += message.get("body", b"")
        if len(data) > MOST_BYTES:
            raise too_large()
        holding.resize(len(data))
        if not message.get("more_body", False):
            return


async def understood(data: bytes | bytearray, meaning: Callable[[bytes | bytearray], _T]) -> _T:
    """What `meaning` makes of a body: in a thread where it is not short, and one at a time where it is long."""
    if len(data) < THREADED:
        return meaning(data)
    return await trio.to_thread.run_sync(meaning, data, limiter=_ALONE if len(data) >= LONG else None)


async def fields(scope: Scope, receive: Receive, *, optional: bool = False) -> Fields:
    """The JSON object that the body spells; with `optional`, no body is an empty one. Raises ApiError, and Gone."""
    data = await read(scope, receive)
    return Fields({}) if optional and not data else await understood(data, parse)


def check_length(headers: Headers) -> None:
    """Refuse a body by the length that it announces. Raises ApiError 413."""
    if _announced(headers) > MOST_BYTES:
        raise too_large()


def _announced(headers: Headers) -> int:
    """How long a body says it is, 0 where it does not."""
    length = headers.get("content-length", "")
    return int(length) if length.isdigit() else 0


def too_large() -> ApiError:
    return ApiError(f"the body has more than {MOST_BYTES >> 20} MiB", status=413, code="body_too_large")


_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
"""Half of a surrogate pair, as JSON can spell it."""


def parse(data: bytes | bytearray) -> Fields:
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


def decode(data: bytes | bytearray) -> Any:
    """What a body spells in JSON. Raises ApiError 400, and 413 where it has too many parts."""
    if len(data) >= LONG:
        _check_parts(data)
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


def _check_parts(data: bytes | bytearray) -> None:
    if data.count(b"[") + data.count(b"{") > MOST_BRACKETS or data.count(b",") > MOST_COMMAS:
        raise ApiError(
            f"the body has more than {MOST_BRACKETS} brackets or {MOST_COMMAS} commas",
            status=413,
            code="body_too_large",
        )


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
