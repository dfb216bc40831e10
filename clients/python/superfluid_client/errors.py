"""What can go wrong: everything the client raises of its own accord is a SuperfluidError."""

from __future__ import annotations

BUSY = " is generating;"
IDLE = "no generation in flight"


class SuperfluidError(Exception):
    """The daemon refused, or did not answer as it should. `status` is the HTTP status where that is not 200."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.status = status


class SessionBusy(SuperfluidError):
    """The session is generating; wait for it, or cancel it."""


class Unreachable(SuperfluidError, OSError):
    """No answer, or one that broke off. It is an OSError too, for code that watches the connection."""


def refusal(message: str) -> SuperfluidError:
    """The error that stands for a message of the daemon, told apart by what it says."""
    return SessionBusy(message) if BUSY in message else SuperfluidError(message)
