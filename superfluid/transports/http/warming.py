"""POST /v1/sessions/{id}/warm: a conversation computed ahead of its turn (spec: streaming-facts, 1.4)."""

from __future__ import annotations

import secrets

import trio
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from superfluid.daemon.replies.conversing import Turn
from superfluid.daemon.use_cases import UseCases
from superfluid.protocol.feed_responses import Warmed
from superfluid.protocol.refusals import Refusal
from superfluid.transports.http import body, sampling
from superfluid.transports.http.chat import TOOLS, turns
from superfluid.transports.http.errors import ApiError
from superfluid.transports.http.leaving import cancel_when_gone
from superfluid.transports.http.naming import found


class Warming:
    """The ASGI endpoint. Of the body of a chat request, what shapes its prompt is read and the rest ignored."""

    def __init__(self, cases: UseCases) -> None:
        self._cases = cases

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        target = found(self._cases, scope["path_params"]["session"])
        told = await body.understood(await body.read(scope, receive), _told)
        warmed: Warmed | None = None
        fault: ApiError | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cancel_when_gone, receive, nursery.cancel_scope)
            try:
                warmed = await self._cases.turning.warm(target.session, told)
            except Refusal as refusal:  # raised below, as itself: a nursery would wrap it
                fault = target.refused(refusal, "messages")
            nursery.cancel_scope.cancel()
        if fault is not None:
            raise fault
        if warmed is not None:
            head = {"id": "warm_" + secrets.token_hex(12), "object": "session.warm", "session_id": target.key}
            reply = {
                "finish_reason": warmed.finish,
                "prompt_tokens": warmed.prompt_tokens,
                "cached_tokens": warmed.cached_tokens,
                "prefix_cached_tokens": warmed.prefix_cached_tokens,
                "data_version": warmed.data_version,
            }
            await JSONResponse({**head, **reply})(scope, receive, send)


def _told(data: bytes | bytearray) -> tuple[Turn, ...]:
    """Raises ApiError."""
    fields = body.parse(data)
    sampling.refuse(fields, TOOLS)
    fields.object("chat_template_kwargs")
    return turns(fields)
