"""Telling the daemon what rounds drew: each telling wakes it, and a client, on cores that compute meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from superfluid.protocol.ticks import Drawn

PAUSE = 0.03
"""Seconds between two announcements, where no lane waits for its first token: a reader sees no difference, and beside
two compute threads on two cores, a telling for each token of 9 ms costs a twentieth of the speed."""


class Announcing:
    """Gathers the tokens of quick rounds. `send` takes what they drew; `clock` is seconds."""

    def __init__(self, send: Callable[[Drawn], None], clock: Callable[[], float]) -> None:
        self._send = send
        self._clock = clock
        self._tick = 0
        self._tokens: list[tuple[int, int]] = []
        self._sent = clock()

    def drew(self, tick: int, tokens: Sequence[tuple[int, int]], *, first: bool) -> None:
        """A round of `tick` drew these; `first` is whether one of them is the first of its lane."""
        self._tick = tick
        self._tokens += tokens
        if first or self._clock() - self._sent >= PAUSE:
            self.flush()

    def flush(self) -> None:
        """Tell what was not told yet. To be called at the end of each tick."""
        if self._tokens:
            self._send(Drawn(self._tick, tuple(self._tokens)))
            self._tokens = []
            self._sent = self._clock()
