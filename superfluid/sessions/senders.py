"""Who pushed which entries last, so that a push that is sent again after a lost answer is taken in once.

A sender numbers its entries and sends the next ones once the last ones are acknowledged. One daemon remembers this:
what is sent again to the next one, whose queue is empty, that one takes in (decision 31).
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

MOST = 256
"""Senders that a session remembers, those that pushed last."""


@dataclass(frozen=True, slots=True)
class Numbered:
    """The entries of a push as their sender counts them: `first` is the number of the first."""

    sender: int
    first: int


@dataclass(frozen=True, slots=True)
class Accepted:
    """What became of a push: entries accepted, entries dropped for it, and the ordinal of its last one."""

    pushed: int
    dropped: int
    last: int


class Senders:
    """Of one session."""

    def __init__(self) -> None:
        self._latest: OrderedDict[int, tuple[int, Accepted]] = OrderedDict()

    def before(self, numbered: Numbered) -> Accepted | None:
        """What became of the push that began with this entry, if that was its sender's latest."""
        first, accepted = self._latest.get(numbered.sender, (None, None))
        return accepted if first == numbered.first else None

    def keep(self, numbered: Numbered, accepted: Accepted) -> None:
        self._latest[numbered.sender] = numbered.first, accepted
        self._latest.move_to_end(numbered.sender)
        if len(self._latest) > MOST:
            self._latest.popitem(last=False)
