"""What was said in a session, message by message, and where it stands in the token stream.

A conversation that a client sends again is matched against this, and a rewind goes back to the end of one of these.
Data, raw appends and blocks are no messages: they stand between them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from superfluid.protocol.codes import Role
from superfluid.sessions.cuts import Cuts


@dataclass(frozen=True, slots=True)
class Said:
    """One message: tokens `start` to `end - 1` of the stream, header and separators included.

    `text` of an assistant's turn is all that it drew on the text channel. The rest is the state right after it.
    """

    role: int
    text: str
    start: int
    end: int
    roles: int
    """roles so far"""
    tail: int
    """the `Tail`"""
    turn_start: int
    calls: tuple[tuple[str, str], ...] = ()
    """tool calls of an assistant's turn: name, and arguments as JSON text"""

    def moved(self, cuts: Cuts) -> Said:
        """The same message after `cuts` were taken out of the stream."""
        return replace(
            self,
            start=cuts.moved(self.start),
            end=cuts.moved(self.end),
            turn_start=cuts.moved(self.turn_start),
        )

    def called(self, name: str, arguments: str) -> Said:
        """With one more call; only an assistant calls."""
        return replace(self, calls=(*self.calls, (name, arguments))) if self.role == Role.ASSISTANT else self
