"""POST /v1/messages/count_tokens: how long a prompt would be, by tokenising alone."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

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
        fields = await body.fields(request.scope, request.receive)
        turns = conversation(fields)
        try:
            count = await self._cases.conversing.count(turns, settings(fields))
        except OverWindow as refusal:
            raise too_long(refusal) from None
        except Refusal as refusal:
            raise from_refusal(refusal, "messages") from None
        return JSONResponse({"input_tokens": count})
