"""The four routes, as one ASGI application."""

from __future__ import annotations

import logging

from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from superfluid.daemon.activity import Activity
from superfluid.daemon.use_cases import UseCases
from superfluid.transports.exchange import Exchange
from superfluid.transports.holding import HeldBodies
from superfluid.transports.http.body import Gone
from superfluid.transports.web.guard import Guard
from superfluid.transports.web.refusals import Refused, say
from superfluid.transports.web.rpc import rpc
from superfluid.transports.web.socket import WebSocket
from superfluid.transports.web.stream import stream

_LOG = logging.getLogger("superfluid.web")

_METHODS = {"/web/rpc": "POST", "/web/stream": "POST", "/web/ws": "GET", "/web/health": "GET"}


class WebApp:
    """Everything behind the address of `--web`."""

    def __init__(self, cases: UseCases, guard: Guard, activity: Activity, bodies: HeldBodies) -> None:
        self._cases = cases
        self._bodies = bodies
        self._guard = guard
        self._bucket = cases.completing.bucket()
        """completions over `/web/rpc`, whose requests belong to no connection"""
        self._activity = activity

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if scope["type"] == "websocket":
                await self._websocket(scope, receive, send)
            else:
                with self._activity, self._bodies.one(scope):
                    await self._request(scope, Exchange(receive, send))
        except Exception:
            _LOG.exception("a request failed")

    async def _request(self, scope: Scope, exchange: Exchange) -> None:
        try:
            await self._route(scope, exchange)
        except Refused as fault:
            await say(exchange.send, fault.status, fault.body, fault.headers)
        except Gone:
            pass

    async def _route(self, scope: Scope, exchange: Exchange) -> None:
        headers, path = Headers(scope=scope), scope["path"]
        self._guard.check_host(headers)
        method = _METHODS.get(path)
        if method is None:
            raise Refused(404, f"there is nothing at this path; there are {', '.join(_METHODS)}")
        if scope["method"] != method and (method, scope["method"]) != ("GET", "HEAD"):
            raise Refused(405, f"this path answers {method}", {"allow": method})
        match path:
            case "/web/health":
                await say(exchange.send, 200, b"")
            case "/web/ws":
                self._guard.check_handshake(headers)
                raise Refused(426, "this path is for WebSockets", {"upgrade": "websocket", "connection": "upgrade"})
            case "/web/rpc":
                self._guard.check_request(headers)
                await rpc(self._cases, self._bucket, scope, exchange.receive, exchange.send)
            case _:
                self._guard.check_request(headers)
                await stream(self._cases, scope, exchange.receive, exchange.send)

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        await receive()  # websocket.connect; left unread, it would keep a refused connection from being closed
        try:
            self._guard.check_host(headers)
            if scope["path"] != "/web/ws":
                raise Refused(404, "the WebSocket is at /web/ws")
            subprotocol = self._guard.check_handshake(headers)
        except Refused as fault:
            await say(send, fault.status, fault.body, fault.headers, prefix="websocket.http")
            return
        await send({"type": "websocket.accept", "subprotocol": subprotocol})
        await WebSocket(scope["state"]["socket"], receive, send, self._cases, self._activity).run()
