"""Stop strings in a text that arrives in pieces."""

from __future__ import annotations

MOST_STOPS, LONGEST_STOP = 16, 4096
"""What may end one text: every token of it is looked at for all of them."""


class StopFinder:
    """Passes text on up to the first stop string, holding back what may yet become one.

    `found` is the stop string that ended the text, None as long as none did.
    """

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._held = ""
        self.found: str | None = None

    def feed(self, text: str) -> str:
        """The text that is certain to come before any stop string. Nothing once one was found."""
        if self.found is not None or not self._stops:
            return text if self.found is None else ""
        self._held += text
        places = [(at, stop) for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if places:
            at, self.found = min(places, key=lambda place: (place[0], -len(place[1])))
            return self._held[:at]
        keep = max((self._overlap(stop) for stop in self._stops), default=0)
        cut = len(self._held) - keep
        certain, self._held = self._held[:cut], self._held[cut:]
        return certain

    def flush(self) -> str:
        """What was held back, once no more text comes."""
        held, self._held = self._held, ""
        return "" if self.found is not None else held

    def _overlap(self, stop: str) -> int:
        """How many characters at the end of what is held begin `stop`."""
        for length in range(min(len(stop) - 1, len(self._held)), 0, -1):
            if self._held.endswith(stop[:length]):
                return length
        return 0
