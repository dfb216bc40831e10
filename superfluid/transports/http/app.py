"""The routes of the HTTP listener, as one ASGI application."""

from __future__ import annotations

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
from superfluid.transports.http import body
from superfluid.transports.http.answering import Answering
from superfluid.transports.http.chat import Chat
from superfluid.transports.http.choices import A, Form
from superfluid.transports.http.completions import Completions
from superfluid.transports.http.counting import Counting
from superfluid.transports.http.errors import ApiError, refusal
from superfluid.transports.http.guard import Guard
from superfluid.transports.http.health import Health
from superfluid.transports.http.messages import Messages
from superfluid.transports.http.models import Models
from superfluid.transports.http.traffic import Traffic

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def application(cases: UseCases, config: HttpConfig, activity: Activity) -> ASGIApp:
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
    ]
    app = Starlette(routes=routes, exception_handlers=_HANDLERS)
    app.router.redirect_slashes = False
    return Guard(app, _no_socket, config, activity)


async def _no_socket(_: Scope, __: Receive, ___: Send) -> None:
    raise ApiError("there is no WebSocket at this path", status=404)


async def _refused(request: Request, fault: Exception) -> Response:
    assert isinstance(fault, ApiError)
    return refusal(fault, request.scope["path"])


async def _not_served(request: Request, fault: Exception) -> Response:
    assert isinstance(fault, HTTPException)
    if fault.status_code == 405:
        what = f"{request.method} is not what this path answers"
    else:
        what = "there is nothing at this path"
    return refusal(ApiError(what, status=fault.status_code, headers=fault.headers), request.scope["path"])


async def _failed(request: Request, _: Exception) -> Response:
    """Our own fault. What it was is raised again and ends in the guard's log."""
    fault = ApiError("the server failed on this request", status=500, code="internal_error")
    return refusal(fault, request.scope["path"])


async def _left(_: Request, __: Exception) -> Response:
    """Nobody reads it."""
    return Response(status_code=400)


_HANDLERS: dict[Any, Any] = {
    ApiError: _refused,
    HTTPException: _not_served,
    body.Gone: _left,
    Exception: _failed,
}
