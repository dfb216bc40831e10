"""What transports are in the middle of, so that a drain can wait for the last words."""

from __future__ import annotations

import trio


class Activity:
    """A counter with a moment of rest: `with activity:` around every reply and subscription."""

    def __init__(self) -> None:
        self._count = 0
        self._rest = trio.Event()

    def __enter__(self) -> None:
        self._count += 1

    def __exit__(self, *_: object) -> None:
        self._count -= 1
        if not self._count:
            self._rest.set()

    async def rest(self) -> None:
        """Return once nothing is going on."""
        while self._count:
            self._rest = trio.Event()
            await self._rest.wait()
