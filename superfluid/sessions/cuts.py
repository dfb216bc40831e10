"""Ranges that leave the token stream, and where what comes after them lies then."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable

Range = tuple[int, int]
"""Positions `start` to `stop - 1`."""


class Cuts:
    """Ranges to take out: ascending and apart, neighbours joined."""

    __slots__ = ("_shifts", "_starts", "ranges")

    def __init__(self, ranges: Iterable[Range]) -> None:
        joined: list[Range] = []
        for start, stop in sorted(ranges):
            if joined and start <= joined[-1][1]:
                joined[-1] = (joined[-1][0], max(stop, joined[-1][1]))
            elif start < stop:
                joined.append((start, stop))
        self.ranges = tuple(joined)
        self._starts = [start for start, _ in joined]
        self._shifts = [0]
        for start, stop in joined:
            self._shifts.append(self._shifts[-1] + stop - start)

    @property
    def removed(self) -> int:
        """Positions that are taken out."""
        return self._shifts[-1]

    def moved(self, position: int) -> int:
        """Where `position` lies afterwards; what is taken out itself, where its range was."""
        place = bisect_right(self._starts, position)
        if not place:
            return position
        start, stop = self.ranges[place - 1]
        return position - self._shifts[place] if position >= stop else start - self._shifts[place - 1]

    def applied(self, tokens: array[int]) -> array[int]:
        """`tokens` without the ranges."""
        left = array("I")
        end = 0
        for start, stop in self.ranges:
            left.extend(tokens[end:start])
            end = stop
        left.extend(tokens[end:])
        return left
