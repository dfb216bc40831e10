"""POST /v1/messages/count_tokens: how long a prompt would be, by tokenising alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from superfluid.daemon.replies.conversing import Turn
from superfluid.daemon.use_cases import UseCases
from superfluid.protocol.refusals import OverWindow, Refusal
from superfluid.transports.http import body
from superfluid.transports.http.errors import from_refusal
from superfluid.transports.http.messages import conversation, settings, too_long


class Counting:
    """Waits for no generation, and takes what does not fit as long as it can be counted."""

    def __init__(self, cases: UseCases) -> None:
        self._cases = cases

    async def count(self, request: Request) -> Response:
        data = await body.read(request.scope, request.receive)
        turns, told = await body.understood(data, _asked)
        try:
            count = await self._cases.conversing.count(turns, told)
        except OverWindow as refusal:
            raise too_long(refusal) from None
        except Refusal as refusal:
            raise from_refusal(refusal, "messages") from None
        return JSONResponse({"input_tokens": count})


def _asked(data: bytes | bytearray) -> tuple[tuple[Turn, ...], Mapping[str, Any]]:
    """Raises ApiError."""
    fields = body.parse(data)
    return conversation(fields), settings(fields)
