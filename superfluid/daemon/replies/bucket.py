"""A token bucket: so many requests a second in the long run, and so many at once (spec: wire-facts, 8.15)."""

from __future__ import annotations

LONGEST_WAIT = 86_400.0
"""Seconds; nobody is told to wait longer."""

_NEARLY = 1e-9
"""What rounding may take from a whole token."""


class Bucket:
    """Starts full. `rate` is tokens a second, 0 for a bucket that never runs dry; `burst` is what it holds."""

    def __init__(self, rate: float, burst: float) -> None:
        self._rate = rate
        self._burst = burst
        self._tokens = burst
        self._since: float | None = None

    def take(self, now: float) -> float:
        """Take one token at the time `now`, in seconds; 0.0 where there was one, else how long until there is."""
        if self._rate <= 0:
            return 0.0
        if self._since is not None:
            self._tokens = min(self._burst, self._tokens + max(0.0, now - self._since) * self._rate)
        self._since = now
        if self._tokens >= 1 - _NEARLY:
            self._tokens = max(0.0, self._tokens - 1)
            return 0.0
        return min((1 - self._tokens) / self._rate, LONGEST_WAIT)
