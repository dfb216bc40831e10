"""`/web/rpc`: one request, one reply."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import trio
from starlette.types import Receive, Scope, Send

from superfluid.daemon.replies.bucket import Bucket
from superfluid.daemon.use_cases import UseCases
from superfluid.protocol import jsonform, responses
from superfluid.protocol.frames import MAX_FRAME
from superfluid.protocol.refusals import ReplyTooLong
from superfluid.protocol.requests import Request
from superfluid.protocol.responses import Response
from superfluid.transports.conversation import is_large
from superfluid.transports.dispatch import STREAMS, answer, ends_with_its_client
from superfluid.transports.http.body import Gone
from superfluid.transports.http.leaving import cancel_when_gone
from superfluid.transports.web import bodies
from superfluid.transports.web.refusals import encoded, say


async def rpc(cases: UseCases, bucket: Bucket, scope: Scope, receive: Receive, send: Send) -> None:
    """`bucket` meters completions. Raises Refused and `body.Gone`."""
    request = await bodies.read(scope, receive, _request)
    response: Response
    if ends_with_its_client(request):
        response = await _unless_gone(receive, lambda: answer(cases, request, bucket))
    elif isinstance(request, STREAMS):
        name = type(request).__name__
        response = responses.Err(
            f"protocol: {name} streams, and this answers once; send it over the WebSocket (/web/ws), or generate "
            "with server-sent events (/web/stream)"
        )
    else:
        response = await answer(cases, request, bucket)
    if isinstance(response, responses.Throttled):
        await say(send, 429, await encode(response), {"retry-after": str(-(-response.retry_after_ms // 1000))})
    else:
        await say(send, 200, await encode(response))


async def _unless_gone(receive: Receive, work: Callable[[], Awaitable[Response]]) -> Response:
    """What `work` gives. Where the client leaves meanwhile, stops it and raises `body.Gone`."""
    done: list[Response] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(cancel_when_gone, receive, nursery.cancel_scope)
        done.append(await work())
        nursery.cancel_scope.cancel()
    if not done:
        raise Gone
    return done[0]


def _request(value: Any) -> Request:
    request: Request = jsonform.from_json(Request, value)
    return request


async def encode(response: Response) -> bytes:
    """A response as JSON, within the bounds of a frame."""
    if is_large(response):
        data = await trio.to_thread.run_sync(encoded, response)
    else:
        data = encoded(response)
    return data if len(data) <= MAX_FRAME else encoded(responses.Err(str(ReplyTooLong(len(data)))))
