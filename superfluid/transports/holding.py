"""What is held of request bodies, of all listeners together: bounded, with room kept for the small ones.

The first `SMALL` bytes of a body count against one bound and the rest against another: so a few long bodies, which
fill the second, leave the short ones their room.
"""

from __future__ import annotations

from types import TracebackType

from starlette.types import Scope

SMALL = 256 << 10
MOST_SMALL = 64 << 20
MOST_LARGE = 256 << 20

STALLED = 60.0
"""Seconds that a client may leave between two pieces of what it sends."""

SLOWEST = 32 << 10
"""Bytes a second that it has to come with, after the first minute."""

_KEY = "superfluid_holding"


class NoRoom(Exception):
    """More is held of request bodies than there is room for."""


class HeldBodies:
    """The bodies that one daemon holds. The numbers are bytes."""

    def __init__(self, most_small: int = MOST_SMALL, most_large: int = MOST_LARGE) -> None:
        self._small = most_small
        self._large = most_large

    def one(self, scope: Scope) -> Holding:
        """What the request of `scope` is going to hold, and where `holding_of` finds it. Leaving it gives it back."""
        holding = Holding(self)
        scope["state"][_KEY] = holding
        return holding

    @property
    def free(self) -> int:
        """How long a body may be that comes next."""
        return min(self._small, SMALL) + (self._large if self._small >= SMALL else 0)

    def _take(self, small: int, large: int) -> None:
        """Raises NoRoom, and takes nothing then."""
        if small > self._small or large > self._large:
            raise NoRoom
        self._small -= small
        self._large -= large


class Holding:
    """What is held of one body, until the request is over."""

    def __init__(self, bodies: HeldBodies) -> None:
        self._bodies = bodies
        self._size = 0

    def __enter__(self) -> Holding:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, at: TracebackType | None
    ) -> None:
        self.resize(0)

    def announce(self, size: int) -> None:
        """So many bytes are to come. Raises NoRoom where there is none for them now; nothing is taken yet."""
        if size > self._bodies.free:
            raise NoRoom

    def resize(self, size: int) -> None:
        """So many bytes are held now. Raises NoRoom, and changes nothing then."""
        small = min(size, SMALL) - min(self._size, SMALL)
        self._bodies._take(small, size - self._size - small)
        self._size = size


def holding_of(scope: Scope) -> Holding:
    """What `HeldBodies.one` made for this request."""
    holding: Holding = scope["state"][_KEY]
    return holding
