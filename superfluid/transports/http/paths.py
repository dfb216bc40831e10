"""What there is at a path: which methods answer there, and where else a client may have meant."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from superfluid.transports.http.errors import ApiError

PREFIX = "/v1"
"""What the base address of a client ends in, or has once too often or not at all."""


class Paths:
    """The routes as one ASGI application, whose `app` answers. A slash at the end of a path changes nothing."""

    def __init__(self, app: ASGIApp, routes: Sequence[Route]) -> None:
        self._app = app
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"].rstrip("/") or "/"
        if scope["method"] == "OPTIONS" and (allowed := self.allowed(path)):
            await Response(status_code=204, headers={"allow": allowed})(scope, receive, send)
        else:
            await self._app({**scope, "path": path}, receive, send)

    def allowed(self, path: str) -> str:
        """The methods that are answered at a path, as `Allow` lists them; empty where there is nothing."""
        if path == "*":
            found = {method for route in self._routes for method in route.methods or ()}
        else:
            found = {method for route in self._routes if _is_at(route, path) for method in route.methods or ()}
        return ", ".join(sorted({*found, "OPTIONS"})) if found else ""

    def nothing(self, path: str) -> ApiError:
        """There is nothing at a path, and perhaps at one that is nearly the same."""
        twice = path.removeprefix(PREFIX) if path.startswith(PREFIX + PREFIX) else path
        for near in (PREFIX + path, twice):
            if near != path and self.allowed(near):
                return ApiError(f"there is nothing at this path; it is {near}", status=404)
        return ApiError("there is nothing at this path; the API is under /v1", status=404)

    def wrong_method(self, method: str, path: str) -> ApiError:
        allowed = self.allowed(path)
        said = f"{method[:20]} is not what this path answers; it answers {allowed}"
        return ApiError(said, status=405, headers={"allow": allowed})


def _is_at(route: Route, path: str) -> bool:
    match, _ = route.matches({"type": "http", "path": path, "method": "", "root_path": ""})
    return match is not Match.NONE
