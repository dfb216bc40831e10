"""Who may ask, and how much: everything that is decided before a route sees a request (decisions 32 and 41).

In order: the `Host` and `Origin` of the request, which tell a web page that reaches for this machine from a program;
the API key; the kind and the announced size of the body. What the routes raise ends here as well.
"""

from __future__ import annotations

import hmac
import logging

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from superfluid.daemon.activity import Activity
from superfluid.daemon.config import HttpConfig
from superfluid.transports.exchange import Exchange
from superfluid.transports.holding import HeldBodies
from superfluid.transports.hosts import hostname, is_address, is_loopback
from superfluid.transports.http import body
from superfluid.transports.http.errors import ApiError, id_header, new_request_id, refusal

_LOG = logging.getLogger("superfluid.http")

OPEN_PATHS = frozenset(["/health", "/healthz"])
"""What is answered without a key, beside OPTIONS."""


class Guard:
    """ASGI middleware around the whole application.

    `sockets` are for WebSockets, whose `websocket.connect` was received; they raise ApiError before they accept one.
    """

    def __init__(
        self, app: ASGIApp, sockets: ASGIApp, config: HttpConfig, activity: Activity, bodies: HeldBodies
    ) -> None:
        self._app = app
        self._bodies = bodies
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
                    with self._bodies.one(scope):
                        await self._let_in(scope, Exchange(receive, _named(scope["path"], send)))
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
            await _refuse_upgrade(fault, scope["path"], send)

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        for host in (*headers.getlist("host"), *headers.getlist(":authority")):
            if not self._knows(host):
                raise _forbidden("host", "this server does not go by that name; allow it with --http-host")
        for origin in headers.getlist("origin"):
            if not self._trusts(origin):
                raise _forbidden("origin", "web pages of that origin may not ask; allow it with --http-origin")
        if self._key is not None and scope["path"] not in OPEN_PATHS and scope.get("method") != "OPTIONS":
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


def _named(path: str, send: Send) -> Send:
    """Every reply names its request, in the header that the dialect of its path has for that."""
    name = id_header(path).encode()

    async def send_named(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = [*message["headers"]]
            if not any(field == name for field, _ in headers):
                message = {**message, "headers": [*headers, (name, new_request_id().encode())]}
        await send(message)

    return send_named


async def _refuse_upgrade(fault: ApiError, path: str, send: Send) -> None:
    reply = refusal(fault, path)
    start = {"type": "websocket.http.response.start", "status": reply.status_code, "headers": reply.raw_headers}
    await send(start)
    await send({"type": "websocket.http.response.body", "body": bytes(reply.body), "more_body": False})


def _check_body(headers: Headers) -> None:
    kind = headers.get("content-type")
    if kind is not None and not body.is_json(kind):
        raise ApiError("content-type: expected application/json", status=415, param="content-type")
    body.check_length(headers)


def _forbidden(header: str, why: str) -> ApiError:
    return ApiError(f"{header}: {why}", status=403, param=header, code=f"{header}_not_allowed")


def _unknown(why: str) -> ApiError:
    return ApiError(why, status=401, code="invalid_api_key", headers={"www-authenticate": "Bearer"})
