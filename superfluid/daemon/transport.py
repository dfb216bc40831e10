"""What the daemon asks of a transport. The transports stand above this room and are handed in."""

from __future__ import annotations

from typing import Protocol

import trio

from superfluid.daemon.activity import Activity
from superfluid.daemon.use_cases import UseCases


class Transport(Protocol):
    """A way in. Bound before the model loads, so that an address that is taken is found at once."""

    @property
    def kind(self) -> str:
        """`socket`, `http` or `web`."""

    @property
    def url(self) -> str | None:
        """Where HTTP clients find it, once bound; None where it is no HTTP."""

    @property
    def open(self) -> bool:
        """Whether others than this machine's users can reach it and need no key."""

    def bind(self) -> None:
        """Raises StartError."""

    async def serve(self, cases: UseCases, activity: Activity, clients: trio.Nursery) -> None:
        """Accept clients until cancelled; those accepted live in `clients`."""

    def close(self) -> None:
        """Stop listening and leave nothing behind. Also after a `bind` that failed."""
