"""Clients that leave while something is done for them."""

from __future__ import annotations

import trio
from starlette.types import Receive


async def cancel_when_gone(receive: Receive, scope: trio.CancelScope) -> None:
    """Cancel `scope` once the client has left. The body must have been read."""
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()
