"""Taking tokens out of the middle of a sequence, for a stream that lost its oldest entries.

A shift only says where the tokens are now; their KV follows in the next decode, all that wait in one pass over the
whole pool. That pass takes as long as a long round, so shifts are not executed one by one: what a tick's orders ask
for is executed by its first decode. A state saved or copied before that would be wrong without a word.
"""

from __future__ import annotations

from collections.abc import Sequence

from superfluid.engine.backend import Backend, Decoded, Stretch
from superfluid.engine.host import HostCopies
from superfluid.engine.radix import common
from superfluid.engine.slots import Slot, settle


class Shifting:
    """Shifts sequences, and sees to it that they are executed before anybody reads what they move."""

    def __init__(self, backend: Backend, slots: Sequence[Slot], host: HostCopies) -> None:
        self._backend = backend
        self._slots = slots
        self._host = host

    def shift(self, session: int, start: int, count: int) -> None:
        """Take `count` tokens, from index `start` on, out of the session's idle sequence; of several, out of the one
        used last. Nothing changes where none holds as many, where one end of a copy is still to come, or where the
        backend cannot do that."""
        slots = [
            slot for slot in self._slots if slot.idle and slot.session == session and not (slot.copied or slot.lent)
        ]
        slot = max(slots, key=lambda slot: slot.used, default=None)
        if slot is None or not count or start + count > len(slot.tokens) or not self._backend.traits.shifts:
            return
        before = slot.tokens[:]
        del slot.tokens[start : start + count]
        moved = self._backend.shift(slot.number, start, count)
        if not moved or not slot.tokens or self._backend.last(slot.number) != len(slot.tokens) - 1:
            self._clear(slot)
            return
        slot.shifted = slot.shifted or start < len(slot.tokens)
        for copy in tuple(self._host):
            # What was saved of the stream as it was would go on counting as the session's KV.
            gone = common(copy.tokens, before) > start and common(copy.tokens, slot.tokens) < len(copy.tokens)
            if copy.session == session and gone:
                self._host.drop(copy)

    def execute(self, slot: Slot) -> bool:
        """Have the KV of a sequence where its tokens are: false where that failed, and it must not be read."""
        if not slot.shifted:
            return True
        length = len(slot.tokens)
        # Any decode will do: one more token, and away with it. There is room for it since a shift makes some.
        result = self._backend.decode([Stretch(slot.number, length, slot.tokens[-1:], False)])
        if result is Decoded.NO_ROOM:
            return False
        if result is Decoded.DONE:
            settle(self._slots)
            if self._backend.cut(slot.number, length) and self._backend.last(slot.number) == length - 1:
                return True
        self._clear(slot)
        return False

    def _clear(self, slot: Slot) -> None:
        self._backend.clear(slot.number)
        slot.empty()
