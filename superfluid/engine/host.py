"""Copies of sequences in host memory, within a budget of bytes; the least recently used go first.

Copies of *held* sessions go last, the last one on the list before the others; but held copies keep no more than
`held_bytes` from others: past it, in the order of the list, they count like all.

Copies of ephemeral *lanes* that wait go with their lane, and serve lanes alone: nothing counts as saved by them.

*Checkpoints* are partial copies, of layers that do not keep the past, as they were after some turn. With the rest of
a longer sequence they bring it back to there. They share the budget, of which they take at most a quarter.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from superfluid.engine.backend import State
from superfluid.engine.radix import RadixIndex, strays


@dataclass(frozen=True, slots=True, eq=False)
class HostCopy:
    """One saved sequence: what it held, whose it was, and the smallest position that the state really has. A
    `partial` one is a checkpoint; with `lane`, it is what an ephemeral lane held."""

    session: int
    tokens: array[int]
    state: State
    first: int
    partial: bool = False
    lane: int | None = None

    @property
    def lasting(self) -> bool:
        """Whether it is whole, and its session's."""
        return not self.partial and self.lane is None


CHECKPOINTS = 8
"""The most that one session has. Where there are more, those go that lie closest to others."""

_CHECKPOINT_SHARE = 4


class HostCopies:
    """The copies, oldest use first. Their sizes never sum to more than `budget` bytes."""

    def __init__(self, budget: int, held_bytes: int = 0) -> None:
        self._budget = budget
        self._held_bytes = held_bytes
        self._held: dict[int, int] = {}
        self._bytes = 0
        self._copies: dict[int, HostCopy] = {}
        self.index: RadixIndex[HostCopy] = RadixIndex()
        """whole copies of sessions"""
        self.ephemeral: RadixIndex[HostCopy] = RadixIndex()
        """whole copies of ephemeral lanes"""
        self.checkpoints: RadixIndex[HostCopy] = RadixIndex()
        self._checkpoint_bytes = 0
        self.displaced: Callable[[HostCopy], object] = lambda _: None
        """told of each copy that goes for want of room"""

    @property
    def budget(self) -> int:
        return self._budget

    @property
    def bytes(self) -> int:
        return self._bytes

    @property
    def checkpoint_limit(self) -> int:
        """How many bytes a checkpoint may have: so that a session can have some."""
        return self._budget // _CHECKPOINT_SHARE // 2

    def __iter__(self) -> Iterator[HostCopy]:
        """The whole copies of sessions."""
        return iter([copy for copy in self._copies.values() if copy.lasting])

    def __len__(self) -> int:
        return len(self.index)

    def hold(self, sessions: Sequence[int]) -> None:
        """Copies of these sessions go after all others; replaces the list before."""
        self._held = {session: place for place, session in enumerate(sessions)}

    def add(self, copy: HostCopy) -> bool:
        """Keep a copy as the most recently used one, dropping others for it. False where it does not fit beside
        those that go after it."""
        self._copies[id(copy)] = copy
        self._bytes += len(copy.state)
        self._index_of(copy).add(copy.tokens, copy)
        self._checkpoint_bytes += len(copy.state) if copy.partial else 0
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
            if gone.lasting:
                self.displaced(gone)
        if copy.partial:
            self._thin_out(copy.session)
        return fits

    def _thin_out(self, session: int) -> None:
        """Bound the checkpoints of a session by number, and all of them by bytes."""
        own = sorted(self._partial_of(session), key=lambda copy: len(copy.tokens))
        while len(own) > CHECKPOINTS:
            # The last one stays, and of the others the one before the smallest step goes.
            steps = [len(own[place + 1].tokens) - len(own[place].tokens) for place in range(len(own) - 1)]
            self.drop(own.pop(steps.index(min(steps))))
        for copy in tuple(self._copies.values()):
            if copy.partial and self._checkpoint_bytes * _CHECKPOINT_SHARE > self._budget:
                self.drop(copy)

    def _partial_of(self, session: int) -> list[HostCopy]:
        return [copy for copy in self._copies.values() if copy.partial and copy.session == session]

    def _index_of(self, copy: HostCopy) -> RadixIndex[HostCopy]:
        if copy.partial:
            return self.checkpoints
        return self.index if copy.lane is None else self.ephemeral

    @property
    def lanes(self) -> set[int]:
        """The ephemeral lanes that something is kept of."""
        return {copy.lane for copy in self._copies.values() if copy.lane is not None}

    def of_lane(self, lane: int) -> list[HostCopy]:
        """What is kept of an ephemeral lane."""
        return [copy for copy in self._copies.values() if copy.lane == lane] if len(self.ephemeral) else []

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
            self._index_of(copy).remove(copy.tokens, copy)
            self._checkpoint_bytes -= len(copy.state) if copy.partial else 0

    def limit(self, budget: int) -> None:
        """Change the budget; what does not fit any more goes, oldest use first and held sessions' last."""
        self._budget = budget
        for copy in sorted(self._copies.values(), key=lambda copy: copy.session in self._held):
            over = self._checkpoint_bytes * _CHECKPOINT_SHARE > budget
            if self._bytes > budget or (copy.partial and over):
                self.drop(copy)
                if copy.lasting:
                    self.displaced(copy)

    def forget(self, sessions: Collection[int]) -> None:
        """Drop everything of these sessions, checkpoints too."""
        for copy in tuple(self._copies.values()):
            if copy.session in sessions:
                self.drop(copy)

    def forget_strays(self, sessions: Collection[int], stream: array[int]) -> None:
        """Drop what holds something else of these sessions than `stream`, but for what lanes have that wait."""
        for copy in tuple(self._copies.values()):
            if copy.session in sessions and copy.lane is None and strays(copy.tokens, stream):
                self.drop(copy)

    def check(self) -> None:
        """Raise AssertionError where the books do not balance."""
        assert self._bytes == sum(len(copy.state) for copy in self._copies.values())
        assert self._bytes <= self._budget
        assert len(self.index) + len(self.ephemeral) + len(self.checkpoints) == len(self._copies)
        partial = [copy for copy in self._copies.values() if copy.partial]
        assert len(partial) == len(self.checkpoints)
        assert self._checkpoint_bytes == sum(len(copy.state) for copy in partial)
        assert self._checkpoint_bytes * _CHECKPOINT_SHARE <= self._budget
        self.index.check()
        self.ephemeral.check()
        self.checkpoints.check()
