"""Who may ask: decided from the headers alone, before a byte of a body is read (decisions 10 and 41).

A header that comes twice must be right both times. No reply ever carries a CORS header.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable

from starlette.datastructures import Headers

from superfluid.transports.hosts import hostname, is_loopback
from superfluid.transports.web.refusals import Refused

SUBPROTOCOL = "superfluid.v1"
TOKEN_PREFIX = "superfluid.token."
CSRF = "x-superfluid-csrf"


class Guard:
    """Knows the token and the origins that may open a WebSocket or send what a page sends."""

    def __init__(self, token: str, origins: Iterable[str]) -> None:
        self._token = token.encode()
        self._origins = frozenset(origins)

    def check_host(self, headers: Headers) -> None:
        """A web page that had its own name resolved to this machine shows itself here. Raises Refused 403."""
        for host in headers.getlist("host"):
            name = hostname(host)
            if name is None or not is_loopback(name):
                raise Refused(403, "host: this listener goes by loopback names only, such as 127.0.0.1 and localhost")

    def check_request(self, headers: Headers) -> None:
        """For `/web/rpc` and `/web/stream`. Raises Refused 401, 403."""
        self._check_tokens(_bearers(headers))
        self._check_origins(headers)
        shown = headers.getlist(CSRF)
        if not shown or not self._all_right(shown):
            raise Refused(403, f"{CSRF}: the token has to stand here once more")

    def check_handshake(self, headers: Headers) -> str | None:
        """For `/web/ws`; the subprotocol to agree on. Raises Refused 401, 403, 400."""
        offered = [part.strip() for value in headers.getlist("sec-websocket-protocol") for part in value.split(",")]
        tokens = [entry.removeprefix(TOKEN_PREFIX) for entry in offered if entry.startswith(TOKEN_PREFIX)]
        self._check_tokens([*_bearers(headers), *tokens])
        if not headers.getlist("origin"):
            raise Refused(403, "origin: a WebSocket is for web pages, which name theirs; allow it with --web-origin")
        self._check_origins(headers)
        if SUBPROTOCOL in offered:
            return SUBPROTOCOL
        if any(offered):
            raise Refused(400, f"sec-websocket-protocol: {SUBPROTOCOL} is not among what was offered")
        return None

    def _check_tokens(self, shown: list[str]) -> None:
        if not shown or not self._all_right(shown):
            what = "is not the one of this start" if shown else "is missing"
            where = "it is in web-token in the sessions directory, and goes into `Authorization: Bearer`"
            raise Refused(401, f"the token {what}; {where}", {"www-authenticate": "Bearer"})

    def _check_origins(self, headers: Headers) -> None:
        if not all(origin in self._origins for origin in headers.getlist("origin")):
            raise Refused(403, "origin: web pages of that origin may not ask; allow it with --web-origin")

    def _all_right(self, shown: list[str]) -> bool:
        # All are compared, whatever the first ones say.
        return all([hmac.compare_digest(value.encode("latin-1", "replace"), self._token) for value in shown])


def _bearers(headers: Headers) -> list[str]:
    """What every `Authorization` shows; empty text where that is no bearer's."""
    prefix = "Bearer "
    return [
        value.removeprefix(prefix) if value.startswith(prefix) else "" for value in headers.getlist("authorization")
    ]
