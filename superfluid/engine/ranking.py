"""Which sequence goes when another is needed."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from superfluid.engine.slots import Slot

_WAITING = 2
"""Rank of the sequence of a lane that waits: it goes when nothing else can."""


class Ranking:
    """The order in which sequences are given up. `keep` is, throughout, the lanes that run: theirs never are."""

    def __init__(self, slots: Sequence[Slot]) -> None:
        self._slots = slots
        self._held: dict[int, int] = {}

    def hold(self, sessions: Sequence[int]) -> None:
        """The KV of these sessions goes after that of all others, the first on the list last."""
        self._held = {session: len(sessions) - place for place, session in enumerate(sessions)}

    def first_to_go(
        self, keep: Collection[int], *, besides: Collection[Slot] = (), restoring: bool = False
    ) -> Slot | None:
        """The sequence to give up: one beside those that run, and of those a free one where there is one. With
        `restoring`, one that a state can be restored into."""
        candidates = [
            slot
            for slot in self._slots
            if slot not in besides
            and (slot.lane is None or slot.lane not in keep)
            and not (restoring and (slot.copied or slot.lent))
        ]

        def rank(slot: Slot) -> tuple[bool, int, int, tuple[int, int, int]]:
            state, held, used = self._rank(slot)
            return state == _WAITING, held, self.gap(slot, keep), (state, held, used)

        return min(candidates, key=rank, default=None)

    def idle(self) -> Slot | None:
        """The idle sequence to give up before the others; none that an end of a pending copy is in."""
        idle = [slot for slot in self._slots if slot.idle and not slot.copied and not slot.lent]
        return min(idle, key=self._rank, default=None)

    def gap(self, slot: Slot, keep: Collection[int]) -> int:
        """How many sequences lie between this one and those that run, or between those.

        Lanes decode together only where the numbers of their sequences follow one another: a gap costs every round a
        pass of its own, a third of the speed with eight lanes, and to move KV costs milliseconds once.
        """
        numbers = {one.number for one in self._slots if one.lane is not None and one.lane in keep} | {slot.number}
        return max(numbers) - min(numbers) + 1 - len(numbers)

    def _rank(self, slot: Slot) -> tuple[int, int, int]:
        """What goes first: a free one, else the idle one, else the waiting lane's; of several, one that is not held,
        unused for longest."""
        held = 0 if slot.session is None else self._held.get(slot.session, 0)
        return (0 if slot.free else 1 if slot.idle else _WAITING), held, slot.used
