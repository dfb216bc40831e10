"""The routes under /v1/sessions that answer at once (spec: streaming-facts, 1.2, 2, 3 and 5)."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from superfluid.daemon.feeds.flashing import DEFAULT_TOKENS
from superfluid.daemon.use_cases import UseCases
from superfluid.protocol.feed_refusals import BadName, UnknownFlash
from superfluid.protocol.refusals import Refusal
from superfluid.transports.http import body, objects
from superfluid.transports.http.errors import ApiError, from_refusal
from superfluid.transports.http.fields import Fields, wrong
from superfluid.transports.http.naming import NAME, Target, found
from superfluid.transports.http.pushing import entries, numbered

MOST_U64 = (1 << 64) - 1
Endpoint = Callable[[Request], Awaitable[Response]]


class Sessions:
    """Making, showing and deleting sessions, pushing into them, and their flash queries."""

    def __init__(self, cases: UseCases) -> None:
        self._cases = cases

    @property
    def routes(self) -> list[Route]:
        one = "/v1/sessions/{session}"
        return [
            _route("/v1/sessions", GET=self._list, POST=self._create),
            _route(one, GET=self._show, DELETE=self._delete),
            _route(one + "/push", POST=self._push),
            _route(one + "/flash", GET=self._list_flash, POST=self._add_flash),
            _route(one + "/flash/{flash}", DELETE=self._remove_flash),
        ]

    def _target(self, request: Request) -> Target:
        return found(self._cases, request.path_params["session"])

    # --- sessions -------------------------------------------------------------------------------------------------

    async def _create(self, request: Request) -> Response:
        fields = await body.fields(request.scope, request.receive, optional=True)
        name, window, pre_decode = _name(fields), fields.whole("window", 1, MOST_U64), fields.flag("pre_decode")
        try:
            session = await self._cases.feeds.open(name, window, pre_decode)
            report = await self._cases.feeds.report(session)
        except Refusal as refusal:
            raise from_refusal(refusal, "id" if isinstance(refusal, BadName) else "window") from None
        return JSONResponse(objects.session(report), 201)

    async def _list(self, _: Request) -> Response:
        sessions = []
        for session in self._cases.feeds.ids():
            try:
                sessions.append(objects.session(await self._cases.feeds.report(session)))
            except Refusal:
                continue  # deleted meanwhile, or damaged: the others are still there to see
        return JSONResponse({"object": "list", "data": sessions})

    async def _show(self, request: Request) -> Response:
        target = self._target(request)
        try:
            report = await self._cases.feeds.report(target.session)
            self._cases.feeds.touch(target.session)  # after the report, which tells of the use before this one
        except Refusal as refusal:
            raise target.refused(refusal, "id") from None
        return JSONResponse(objects.session(report))

    async def _delete(self, request: Request) -> Response:
        target = self._target(request)
        try:
            await self._cases.feeds.delete(target.session)
        except Refusal as refusal:
            raise target.refused(refusal, "id") from None
        return JSONResponse({"id": target.key, "object": "session", "deleted": True})

    async def _push(self, request: Request) -> Response:
        target = self._target(request)
        fields = await body.fields(request.scope, request.receive)
        data = await entries(fields)
        try:
            pushed = self._cases.feeds.push(target.session, data, numbered(fields))
        except Refusal as refusal:
            raise target.refused(refusal, "data") from None
        return JSONResponse(objects.push(pushed))

    # --- flash queries --------------------------------------------------------------------------------------------

    async def _add_flash(self, request: Request) -> Response:
        target = self._target(request)
        fields = await body.fields(request.scope, request.receive)
        query, most = fields.needed_text("query"), _flash_tokens(fields)
        try:
            entry = await self._cases.flashing.add(target.session, query, most)
        except Refusal as refusal:
            raise target.refused(refusal, "query") from None
        return JSONResponse(objects.flash(entry))

    async def _list_flash(self, request: Request) -> Response:
        target = self._target(request)
        try:
            flashes, version = await self._cases.flashing.list(target.session)
        except Refusal as refusal:
            raise target.refused(refusal, "id") from None
        data = [objects.flash(entry) for entry in flashes]
        return JSONResponse({"object": "list", "data": data, "data_version": version})

    async def _remove_flash(self, request: Request) -> Response:
        target, key = self._target(request), request.path_params["flash"]
        if not re.fullmatch(r"[0-9]{1,19}", key):
            raise _no_such_flash(key)
        try:
            remaining = await self._cases.flashing.remove(target.session, int(key))
        except UnknownFlash:
            raise _no_such_flash(key) from None
        except Refusal as refusal:
            raise target.refused(refusal, "id") from None
        gone = {"object": "session.flash_query", "deleted": True, "remaining": remaining}
        return JSONResponse({"id": int(key), **gone})


def _route(path: str, **endpoints: Endpoint) -> Route:
    """One path and what answers each method there."""

    async def endpoint(request: Request) -> Response:
        return await endpoints["GET" if request.method == "HEAD" else request.method](request)

    return Route(path, endpoint, methods=list(endpoints))


def _no_such_flash(key: str) -> ApiError:
    return ApiError(f"no such flash query '{key}'", status=404, code=UnknownFlash.code)


def _name(fields: Fields) -> str | None:
    name = fields.text("id")
    if name is not None and (not NAME.fullmatch(name) or name.isdigit()):
        raise wrong("id", "1 to 128 characters of A-Z a-z 0-9 _ -, not digits alone", name)
    return name


def _flash_tokens(fields: Fields) -> int:
    """Any whole number: it is brought to its limits, and never refused for them."""
    value = fields.raw("max_tokens")
    if value is None:
        return DEFAULT_TOKENS
    if not isinstance(value, int) or isinstance(value, bool):
        raise wrong("max_tokens", "a whole number", value)
    return value
