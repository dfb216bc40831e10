"""Which session a request means, and what is said when that cannot be had (decisions 1 and 29)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from starlette.datastructures import Headers

from superfluid.daemon.use_cases import UseCases
from superfluid.protocol.feed_refusals import UnknownName
from superfluid.protocol.refusals import NotQuiet, Refusal, SessionBusy, SessionPurged, UnknownSession
from superfluid.transports.http.errors import ApiError, from_refusal

SESSION_HEADER = "x-superfluid-session-id"
SESSION_HEADERS = (SESSION_HEADER, "x-layerscale-session-id")
"""Equal names of one header; a session is named by its name, or by its number."""

NAME = re.compile("[A-Za-z0-9_-]{1,128}")
"""What a name is made of, and a number as well."""


@dataclass(frozen=True, slots=True)
class Target:
    """A session that was asked for as `key`."""

    session: int
    key: str

    def refused(self, refusal: Refusal, prompt: str) -> ApiError:
        """What the daemon refuses about it, by the key that the client knows. `prompt` is the field of the prompt."""
        match refusal:
            case UnknownSession() | UnknownName() | SessionPurged():
                return ApiError(f"no such session '{self.key}'", status=404, code="unknown_session")
            case SessionBusy() | NotQuiet():
                message = f"session '{self.key}' has a request in flight"
                return ApiError(message, status=409, code=refusal.code)
        fault = from_refusal(refusal, prompt)
        return fault.saying(str(fault).replace(f"session {self.session} ", f"session '{self.key}' ", 1))


def found(cases: UseCases, key: str) -> Target:
    """The live session of that name or number. Raises ApiError 404."""
    try:
        return Target(cases.feeds.resolve(key), key)
    except Refusal as refusal:
        raise Target(0, key).refused(refusal, "id") from None


def named(headers: Headers) -> str | None:
    """The key that a turn names in its headers, None where it names none. Raises ApiError."""
    keys = {value for name in SESSION_HEADERS for value in headers.getlist(name)}
    if len(keys) > 1:
        raise ApiError(f"{SESSION_HEADER}: it names {len(keys)} sessions", param=SESSION_HEADER, code="invalid_value")
    return keys.pop() if keys else None
