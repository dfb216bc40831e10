"""Telling the daemon what rounds drew: each telling wakes it, and clients, on cores that compute meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from superfluid.protocol.ticks import Drawn

PAUSE, PAUSE_EACH, PAUSE_MOST = 0.06, 0.03, 0.125
"""About so many seconds lie between two announcements, where no lane waits for its first token: the second for each
lane that draws, within the first and the last. Where every core computes, to tell each token by itself takes time
from the next one, and the more so the more clients it wakes; text that comes eight times a second is seen to flow."""


class Announcing:
    """Gathers the tokens of quick rounds. `send` takes what they drew; `clock` is seconds."""

    def __init__(self, send: Callable[[Drawn], None], clock: Callable[[], float]) -> None:
        self._send = send
        self._clock = clock
        self._tick = 0
        self._tokens: list[tuple[int, int]] = []
        self._sent = self._drew = clock()
        self._due = False

    def drew(self, tick: int, tokens: Sequence[tuple[int, int]], *, first: bool) -> None:
        """A round of `tick` drew these; `first` is whether one of them is the first of its lane."""
        self._tick = tick
        self._tokens += tokens
        now = self._clock()
        half, self._drew = (now - self._drew) / 2, now
        pause = min(max(PAUSE, PAUSE_EACH * len(tokens)), PAUSE_MOST)
        # As near to it as whole rounds come.
        self._due = self._due or first or now - self._sent + half >= pause

    def tell(self) -> None:
        """Announce what there is, if it is time. To be called where another round follows: what the last one drew is
        told by the outcome, which the daemon had better hear of before anything else."""
        if self._due:
            self._send(Drawn(self._tick, tuple(self._tokens)))
            self.told()

    def told(self) -> None:
        """What was drawn is known: to be called at the end of each tick."""
        self._tokens = []
        self._due = False
        self._sent = self._clock()
