"""Who may ask, and how much: everything that is decided before a route sees a request (decisions 32 and 41).

In order: the `Host` and `Origin` of the request, which tell a web page that reaches for this machine from a program;
the API key; the kind and the announced size of the body. What the routes raise ends here as well.
"""

from __future__ import annotations

import hmac
import logging

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from superfluid.daemon.activity import Activity
from superfluid.daemon.config import HttpConfig
from superfluid.transports.exchange import Exchange
from superfluid.transports.hosts import hostname, is_address, is_loopback
from superfluid.transports.http import body
from superfluid.transports.http.errors import ApiError, refusal

_LOG = logging.getLogger("superfluid.http")

OPEN_PATHS = frozenset(["/health", "/healthz"])
"""What is answered without a key."""


class Guard:
    """ASGI middleware around the whole application.

    `sockets` are for WebSockets, whose `websocket.connect` was received; they raise ApiError before they accept one.
    """

    def __init__(self, app: ASGIApp, sockets: ASGIApp, config: HttpConfig, activity: Activity) -> None:
        self._app = app
        self._sockets = sockets
        self._key = config.api_key.encode() if config.api_key is not None else None
        self._hosts = frozenset(name.lower() for name in config.hosts)
        self._origins = frozenset(origin.lower().rstrip("/") for origin in config.origins)
        self._activity = activity

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._activity:
            try:
                if scope["type"] == "websocket":
                    await self._let_in_socket(scope, receive, send)
                else:
                    await self._let_in(scope, Exchange(receive, send))
            except Exception:
                _LOG.exception("a request failed")

    async def _let_in(self, scope: Scope, exchange: Exchange) -> None:
        try:
            self._check(scope)
        except ApiError as fault:
            await refusal(fault, scope["path"])(scope, exchange.receive, exchange.send)
            return
        await self._app(scope, exchange.receive, exchange.send)

    async def _let_in_socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A WebSocket that is refused is refused by a plain reply, which clients can read."""
        await receive()  # websocket.connect; left unread, it would keep a refused connection from being closed
        try:
            self._check(scope)
            await self._sockets(scope, receive, send)
        except ApiError as fault:
            await _refuse_upgrade(fault, send)

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        for host in (*headers.getlist("host"), *headers.getlist(":authority")):
            if not self._knows(host):
                raise _forbidden("host", "this server does not go by that name; allow it with --http-host")
        for origin in headers.getlist("origin"):
            if not self._trusts(origin):
                raise _forbidden("origin", "web pages of that origin may not ask; allow it with --http-origin")
        if self._key is not None and scope["path"] not in OPEN_PATHS:
            self._check_key(self._key, headers)
        if scope.get("method") in ("POST", "PUT", "PATCH"):
            _check_body(headers)

    def _knows(self, host: str) -> bool:
        name = hostname(host)
        return name is not None and (name == "localhost" or is_address(name) or name in self._hosts)

    def _trusts(self, origin: str) -> bool:
        origin = origin.lower()
        if origin in self._origins:
            return True
        scheme, _, place = origin.partition("://")
        name = hostname(place)
        return scheme in ("http", "https") and name is not None and is_loopback(name)

    def _check_key(self, key: bytes, headers: Headers) -> None:
        shown = headers.getlist("x-api-key")
        for value in headers.getlist("authorization"):
            scheme, _, token = value.partition(" ")
            shown.append(token.strip() if scheme.lower() == "bearer" else "")
        if not shown:
            raise _unknown("this server wants an API key, as `Authorization: Bearer KEY` or `x-api-key: KEY`")
        # All are compared, whatever the first ones say.
        if not all([hmac.compare_digest(value.encode("latin-1", "replace"), key) for value in shown]):
            raise _unknown("the API key is not the one of this server")


async def _refuse_upgrade(fault: ApiError, send: Send) -> None:
    reply = JSONResponse(fault.envelope(), fault.status, headers=fault.headers)
    start = {"type": "websocket.http.response.start", "status": reply.status_code, "headers": reply.raw_headers}
    await send(start)
    await send({"type": "websocket.http.response.body", "body": bytes(reply.body), "more_body": False})


def _check_body(headers: Headers) -> None:
    kind = headers.get("content-type")
    if kind is not None and not body.is_json(kind):
        raise ApiError("content-type: expected application/json", status=415, param="content-type")
    length = headers.get("content-length")
    if length is not None and length.isdigit() and int(length) > body.MOST_BYTES:
        raise body.too_large()


def _forbidden(header: str, why: str) -> ApiError:
    return ApiError(f"{header}: {why}", status=403, param=header, code=f"{header}_not_allowed")


def _unknown(why: str) -> ApiError:
    return ApiError(why, status=401, code="invalid_api_key", headers={"www-authenticate": "Bearer"})
