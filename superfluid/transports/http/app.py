"""The routes of the HTTP listener, as one ASGI application."""

from __future__ import annotations

import time
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from superfluid.daemon.activity import Activity
from superfluid.daemon.config import HttpConfig
from superfluid.daemon.use_cases import UseCases
from superfluid.transports.http.answering import Answering
from superfluid.transports.http.chat import Chat
from superfluid.transports.http.completions import Completions
from superfluid.transports.http.errors import ApiError
from superfluid.transports.http.guard import Guard, refusal
from superfluid.transports.http.models import Models

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def application(cases: UseCases, config: HttpConfig, activity: Activity) -> ASGIApp:
    """Everything behind one HTTP address."""
    models = Models(cases.conversing.model, int(time.time()))

    async def health(_: Request) -> Response:
        if cases.generating.closing:
            return JSONResponse({"status": "unavailable"}, 503)
        return JSONResponse({"status": "ok", "model": cases.conversing.model.name})

    async def metrics(_: Request) -> Response:
        return Response(cases.watching.metrics(), media_type=METRICS_TYPE)

    routes = [
        Route("/health", health),
        Route("/metrics", metrics),
        Route("/v1/models", models.all),
        Route("/v1/models/{model:path}", models.one),
        Route("/v1/chat/completions", Answering(Chat(), cases, config), methods=["POST"]),
        Route("/v1/completions", Answering(Completions(), cases, config), methods=["POST"]),
    ]
    app = Starlette(routes=routes, exception_handlers=_HANDLERS)
    app.router.redirect_slashes = False
    return Guard(app, config, activity)


async def _refused(_: Request, fault: Exception) -> Response:
    assert isinstance(fault, ApiError)
    return refusal(fault)


async def _not_served(request: Request, fault: Exception) -> Response:
    assert isinstance(fault, HTTPException)
    if fault.status_code == 405:
        what = f"{request.method} is not what this path answers"
    else:
        what = "there is nothing at this path"
    return refusal(ApiError(what, status=fault.status_code, headers=fault.headers))


async def _failed(_: Request, __: Exception) -> Response:
    """Our own fault. What it was is raised again and ends in the guard's log."""
    return refusal(ApiError("the server failed on this request", status=500, code="internal_error"))


_HANDLERS: dict[Any, Any] = {ApiError: _refused, HTTPException: _not_served, Exception: _failed}
