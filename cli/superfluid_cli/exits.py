"""Exit codes, and the errors that end a command with one line on stderr."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """What `superfluid` leaves with. CANCELLED and PIPE are what a shell reports for SIGINT and SIGPIPE."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    NO_DAEMON = 3
    NO_SESSION = 4
    CANCELLED = 130
    PIPE = 141


class CliError(Exception):
    """The command fails; `str()` is what the user reads, `code` what the process leaves with."""

    code: Exit = Exit.FAILURE


class UsageError(CliError):
    """The command line asks for something that makes no sense, found after parsing."""

    code = Exit.USAGE


class NoDaemon(CliError):
    """Nothing answers at the socket."""

    code = Exit.NO_DAEMON


class OutputFailed(CliError):
    """Stdout does not take what is written to it."""


class ConnectionBroken(CliError):
    """The daemon went away, or said something that is no reply, in the middle of a conversation."""


class ServerSaid(CliError):
    """The daemon refused; the text is its own. A session that is not there has an exit code of its own."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        missing = message.startswith(("unknown session", "no session is named")) or "was purged" in message
        self.code = Exit.NO_SESSION if missing else Exit.FAILURE
