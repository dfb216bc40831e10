"""One sequence of the context, as the worker keeps its books."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class Slot:
    """One sequence: the tokens whose KV it holds, the session they belong to, and the lane that runs on it.

    `ephemeral` says that the lane leaves nothing when it ends: what the sequence holds is told to nobody, and not
    parked. `copied` and `lent` mark the two ends of a copy that waits for the next decode; they outlive a clearing,
    because the pending copy does. `shifted` says that its tokens have moved down and their KV will with the next
    decode.
    """

    number: int
    tokens: array[int] = field(default_factory=lambda: array("I"))
    session: int | None = None
    lane: int | None = None
    ephemeral: bool = False
    used: int = 0
    copied: bool = False
    lent: bool = False
    shifted: bool = False

    @property
    def idle(self) -> bool:
        return self.lane is None and self.session is not None

    @property
    def free(self) -> bool:
        return self.lane is None and self.session is None

    def empty(self) -> None:
        """Its sequence was cleared."""
        self.tokens = array("I")
        self.session = self.lane = None
        self.ephemeral = self.shifted = False


def settle(slots: Iterable[Slot]) -> None:
    """A decode has passed, whichever sequences it computed: what waited for one is executed."""
    for slot in slots:
        slot.copied = slot.lent = slot.shifted = False
