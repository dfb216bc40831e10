"""Telling the daemon what rounds drew: each telling wakes it, and a client, on cores that compute meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from superfluid.protocol.ticks import Drawn

PAUSE = 0.06
"""About so many seconds lie between two announcements, where no lane waits for its first token. Text that comes
sixteen times a second is seen to flow; where every core computes, to tell each token by itself takes time from the
next one."""


class Announcing:
    """Gathers the tokens of quick rounds. `send` takes what they drew; `clock` is seconds."""

    def __init__(self, send: Callable[[Drawn], None], clock: Callable[[], float]) -> None:
        self._send = send
        self._clock = clock
        self._tick = 0
        self._tokens: list[tuple[int, int]] = []
        self._sent = self._drew = clock()

    def drew(self, tick: int, tokens: Sequence[tuple[int, int]], *, first: bool) -> None:
        """A round of `tick` drew these; `first` is whether one of them is the first of its lane."""
        self._tick = tick
        self._tokens += tokens
        now = self._clock()
        half, self._drew = (now - self._drew) / 2, now
        # As near to it as whole rounds come.
        if first or now - self._sent + half >= PAUSE:
            self.flush()

    def flush(self) -> None:
        """Tell what was not told yet. To be called at the end of each tick."""
        if self._tokens:
            self._send(Drawn(self._tick, tuple(self._tokens)))
            self._tokens = []
            self._sent = self._clock()
