"""The routes of the HTTP listener, as one ASGI application."""

from __future__ import annotations

import re
import time
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from superfluid.daemon.activity import Activity
from superfluid.daemon.config import HttpConfig
from superfluid.daemon.use_cases import UseCases
from superfluid.transports.holding import HeldBodies
from superfluid.transports.http import body
from superfluid.transports.http.answering import Answering
from superfluid.transports.http.chat import Chat
from superfluid.transports.http.choices import A, Form
from superfluid.transports.http.completions import Completions
from superfluid.transports.http.counting import Counting
from superfluid.transports.http.errors import ApiError, refusal
from superfluid.transports.http.events import Events
from superfluid.transports.http.feed_socket import FeedSocket
from superfluid.transports.http.guard import Guard
from superfluid.transports.http.health import Health
from superfluid.transports.http.messages import Messages
from superfluid.transports.http.models import Models
from superfluid.transports.http.naming import NAME, found
from superfluid.transports.http.paths import Paths
from superfluid.transports.http.questions import Questions
from superfluid.transports.http.sessions import Sessions
from superfluid.transports.http.traffic import Traffic
from superfluid.transports.http.warming import Warming

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def application(cases: UseCases, config: HttpConfig, activity: Activity, bodies: HeldBodies) -> ASGIApp:
    """Everything behind one HTTP address."""
    models = Models(cases.conversing.model, int(time.time()))
    traffic = Traffic()
    health = Health(cases, traffic)

    async def metrics(_: Request) -> Response:
        return Response(cases.watching.metrics(), media_type=METRICS_TYPE)

    def answering(form: Form[A]) -> ASGIApp:
        return Answering(form, cases, config, traffic)

    routes = [
        Route("/health", health.tell),
        Route("/healthz", health.tell),
        Route("/metrics", metrics),
        Route("/v1/models", models.all),
        Route("/v1/models/{model:path}", models.one),
        Route("/v1/chat/completions", answering(Chat()), methods=["POST"]),
        Route("/v1/completions", answering(Completions()), methods=["POST"]),
        Route("/v1/messages", answering(Messages()), methods=["POST"]),
        Route("/v1/messages/count_tokens", Counting(cases).count, methods=["POST"]),
        *Sessions(cases).routes,
        Route("/v1/sessions/{session}/generate", answering(Questions()), methods=["POST"]),
        Route("/v1/sessions/{session}/warm", Warming(cases), methods=["POST"]),
        Route("/v1/sessions/{session}/events", Events(cases), methods=["GET"]),
        Route("/v1/sessions/{session}/ws", _no_upgrade, methods=["GET"]),
    ]

    async def not_served(request: Request, fault: Exception) -> Response:
        assert isinstance(fault, HTTPException)
        path = request.scope["path"]
        other = paths.wrong_method(request.method, path) if fault.status_code == 405 else paths.nothing(path)
        return refusal(other, path)

    app = Starlette(routes=routes, exception_handlers={**_HANDLERS, HTTPException: not_served})
    app.router.redirect_slashes = False
    paths = Paths(app, routes)

    async def sockets(scope: Scope, receive: Receive, send: Send) -> None:
        place = _SOCKET.fullmatch(scope["path"])
        if place is None:
            raise ApiError("there is no WebSocket at this path", status=404)
        if not NAME.fullmatch(place[1]):
            raise ApiError("id: a session's name or number is to stand between /v1/sessions/ and /ws", param="id")
        target = found(cases, place[1])
        await send({"type": "websocket.accept"})
        await FeedSocket(receive, send, cases, target).run()

    return Guard(paths, sockets, config, activity, bodies)


_SOCKET = re.compile("/v1/sessions/(.*)/ws", re.DOTALL)


async def _no_upgrade(_: Request) -> Response:
    headers = {"upgrade": "websocket", "connection": "upgrade"}
    raise ApiError("this path is for WebSockets", status=426, headers=headers)


async def _refused(request: Request, fault: Exception) -> Response:
    assert isinstance(fault, ApiError)
    return refusal(fault, request.scope["path"])


async def _failed(request: Request, _: Exception) -> Response:
    """Our own fault. What it was is raised again and ends in the guard's log."""
    fault = ApiError("the server failed on this request", status=500, code="internal_error")
    return refusal(fault, request.scope["path"])


async def _left(_: Request, __: Exception) -> Response:
    """Nobody reads it."""
    return Response(status_code=400)


_HANDLERS: dict[Any, Any] = {
    ApiError: _refused,
    body.Gone: _left,
    Exception: _failed,
}
