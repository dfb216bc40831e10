"""Where the worker last said that sessions' KV lies. Whoever plans takes it as an estimate; after a respawn it holds
only what the new worker found on disk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

from superfluid.protocol.ticks import KvChange


class Mirror(Mapping[int, KvChange]):
    """By session. Who holds none is not in it."""

    def __init__(self) -> None:
        self._places: dict[int, KvChange] = {}
        self._lost: set[int] = set()

    def __getitem__(self, session: int) -> KvChange:
        return self._places[session]

    def __iter__(self) -> Iterator[int]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def covers(self, session: int, tokens: int) -> bool:
        """Whether so many tokens of a session have KV. A last one that was drawn has none, and needs none."""
        place = self._places.get(session)
        return place is not None and place.covered + 1 >= tokens

    def told(self, changes: Sequence[KvChange]) -> None:
        """The worker says what is new."""
        for change in changes:
            if change.tier:
                self._places[change.session] = change
            else:
                self._places.pop(change.session, None)

    def forget(self, sessions: Iterable[int]) -> None:
        """The worker holds nothing of these any more, and need not say so."""
        for session in sessions:
            self._places.pop(session, None)

    def worker_died(self) -> None:
        self._lost |= self._places.keys()
        self._places.clear()

    def take_lost(self) -> Set[int]:
        """The sessions whose KV went with workers that died and was not found by the new one; each is told once."""
        lost, self._lost = self._lost - self._places.keys(), set()
        return lost
