"""`/web/rpc`: one request, one reply."""

from __future__ import annotations

from typing import Any

import trio
from starlette.datastructures import Headers
from starlette.types import Receive, Send

from superfluid.daemon.use_cases import UseCases
from superfluid.protocol import jsonform, requests, responses
from superfluid.protocol.frames import MAX_FRAME
from superfluid.protocol.refusals import ReplyTooLong
from superfluid.protocol.requests import Request
from superfluid.protocol.responses import Response
from superfluid.transports.conversation import LARGE_REPLY, events_in
from superfluid.transports.dispatch import answer
from superfluid.transports.web import bodies
from superfluid.transports.web.refusals import encoded, say


async def rpc(cases: UseCases, headers: Headers, receive: Receive, send: Send) -> None:
    """Raises Refused and `body.Gone`."""
    response = await _response(cases, await bodies.read(headers, receive, _request))
    if isinstance(response, responses.Throttled):
        await say(send, 429, await encode(response), {"retry-after": str(-(-response.retry_after_ms // 1000))})
    else:
        await say(send, 200, await encode(response))


async def _response(cases: UseCases, request: Request) -> Response:
    match request:
        case (
            requests.Generate()
            | requests.Subscribe()
            | requests.Unsubscribe()
            | requests.Ask()
            | requests.FeedSubscribe()
        ):
            name = type(request).__name__
            return responses.Err(
                f"protocol: {name} streams, and this answers once; send it over the WebSocket (/web/ws), or generate "
                "with server-sent events (/web/stream)"
            )
        case _:
            return await answer(cases, request)


def _request(value: Any) -> Request:
    request: Request = jsonform.from_json(Request, value)
    return request


async def encode(response: Response) -> bytes:
    """A response as JSON, within the bounds of a frame."""
    if events_in(response) >= LARGE_REPLY:
        data = await trio.to_thread.run_sync(encoded, response)
    else:
        data = encoded(response)
    return data if len(data) <= MAX_FRAME else encoded(responses.Err(str(ReplyTooLong(len(data)))))
