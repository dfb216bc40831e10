"""Copies of sequences in host memory, within a budget of bytes; the least recently used go first.

Copies of *held* sessions go last, the last one on the list before the others; but held copies keep no more than
`held_bytes` from others: past it, in the order of the list, they count like all.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from superfluid.engine.backend import State
from superfluid.engine.radix import RadixIndex


@dataclass(frozen=True, slots=True, eq=False)
class HostCopy:
    """One saved sequence: what it held, whose it was, and the smallest position that the state really has."""

    session: int
    tokens: array[int]
    state: State
    first: int


class HostCopies:
    """The copies, oldest use first. Their sizes never sum to more than `budget` bytes."""

    def __init__(self, budget: int, held_bytes: int = 0) -> None:
        self._budget = budget
        self._held_bytes = held_bytes
        self._held: dict[int, int] = {}
        self._bytes = 0
        self._copies: dict[int, HostCopy] = {}
        self.index: RadixIndex[HostCopy] = RadixIndex()
        self.displaced: Callable[[HostCopy], object] = lambda _: None
        """told of each copy that goes for want of room"""

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

    def hold(self, sessions: Sequence[int]) -> None:
        """Copies of these sessions go after all others; replaces the list before."""
        self._held = {session: place for place, session in enumerate(sessions)}

    def add(self, copy: HostCopy) -> bool:
        """Keep a copy as the most recently used one, dropping others for it. False where it does not fit beside
        those that go after it."""
        self._copies[id(copy)] = copy
        self._bytes += len(copy.state)
        self.index.add(copy.tokens, copy)
        going = []
        excess = self._bytes - self._budget
        if excess > 0:
            for candidate in self._first_to_go(copy):
                if excess <= 0:
                    break
                going.append(candidate)
                excess -= len(candidate.state)
        fits = excess <= 0
        for gone in going if fits else [copy]:
            self.drop(gone)
            self.displaced(gone)
        return fits

    def _first_to_go(self, added: HostCopy) -> list[HostCopy]:
        """What `added` may displace, in order. It displaces no held copy that goes after it."""
        kept: dict[int, int] = {}
        room = self._held_bytes
        for copy in sorted(
            (copy for copy in self._copies.values() if copy.session in self._held),
            key=lambda copy: self._held[copy.session],
        ):
            if len(copy.state) <= room:
                room -= len(copy.state)
                kept[id(copy)] = self._held[copy.session]
        others = [copy for copy in self._copies.values() if copy is not added and id(copy) not in kept]
        place = kept.get(id(added), len(self._held))
        held = sorted(
            (copy for copy in self._copies.values() if kept.get(id(copy), -1) > place),
            key=lambda copy: -kept[id(copy)],
        )
        return others + held

    def touch(self, copy: HostCopy) -> None:
        """It was used now. One that was dropped meanwhile stays dropped."""
        if self._copies.pop(id(copy), None) is not None:
            self._copies[id(copy)] = copy

    def drop(self, copy: HostCopy) -> None:
        if self._copies.pop(id(copy), None) is not None:
            self._bytes -= len(copy.state)
            self.index.remove(copy.tokens, copy)

    def check(self) -> None:
        """Raise AssertionError where the books do not balance."""
        assert self._bytes == sum(len(copy.state) for copy in self._copies.values())
        assert self._bytes <= self._budget
        assert len(self.index) == len(self._copies)
        self.index.check()
