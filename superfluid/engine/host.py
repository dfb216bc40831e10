"""Copies of sequences in host memory, within a budget of bytes; the least recently used go first."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass

from superfluid.engine.backend import State


@dataclass(frozen=True, slots=True, eq=False)
class HostCopy:
    """One saved sequence: what it held, whose it was, and the smallest position that the state really has."""

    session: int
    tokens: array[int]
    state: State
    first: int


class HostCopies:
    """The copies, oldest use first. Their sizes never sum to more than `budget` bytes."""

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._bytes = 0
        self._copies: dict[int, HostCopy] = {}

    @property
    def budget(self) -> int:
        return self._budget

    @property
    def bytes(self) -> int:
        return self._bytes

    def __iter__(self) -> Iterator[HostCopy]:
        return iter(tuple(self._copies.values()))

    def __len__(self) -> int:
        return len(self._copies)

    def add(self, copy: HostCopy) -> bool:
        """Keep a copy as the most recently used one, dropping old ones for it. False where it never fits."""
        size = len(copy.state)
        if size > self._budget:
            return False
        while self._bytes + size > self._budget:
            self.drop(next(iter(self._copies.values())))
        self._copies[id(copy)] = copy
        self._bytes += size
        return True

    def touch(self, copy: HostCopy) -> None:
        """It was used now. One that was dropped meanwhile stays dropped."""
        if self._copies.pop(id(copy), None) is not None:
            self._copies[id(copy)] = copy

    def drop(self, copy: HostCopy) -> None:
        if self._copies.pop(id(copy), None) is not None:
            self._bytes -= len(copy.state)

    def check(self) -> None:
        """Raise AssertionError where the books do not balance."""
        assert self._bytes == sum(len(copy.state) for copy in self._copies.values())
        assert self._bytes <= self._budget
