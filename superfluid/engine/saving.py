"""From sequences to host memory: what is saved, what need not be, and what is lost where it cannot be."""

from __future__ import annotations

from dataclasses import replace

from superfluid.engine.backend import Backend
from superfluid.engine.host import HostCopies, HostCopy
from superfluid.engine.matching import serves
from superfluid.engine.radix import common
from superfluid.engine.shifting import Shifting
from superfluid.engine.slots import Slot


class Saving:
    """Saves sequences of a backend. With `exact`, a state serves only what ends where it does, in general."""

    def __init__(self, backend: Backend, host: HostCopies, shifting: Shifting, *, exact: bool) -> None:
        self._backend = backend
        self._host = host
        self._shifting = shifting
        self._exact = exact
        self._window = backend.traits.window

    def save(self, slot: Slot) -> None:
        """Copy a sequence to host memory, if that is possible and not done already."""
        if slot.session is None or not slot.tokens or slot.copied or self._saved(slot):
            return
        if self._backend.state_size(slot.number) > self._host.budget:
            return
        copy = self.copy_of(slot)
        if copy is None:
            return
        if slot.ephemeral:
            copy = replace(copy, lane=slot.lane)
        if not self._exact:
            for older in self._older(copy):
                # What the new copy contains can be cut from it.
                if common(older.tokens, copy.tokens) == len(older.tokens):
                    self._host.drop(older)
        self._host.add(copy)

    def _older(self, copy: HostCopy) -> list[HostCopy]:
        """The whole copies of the same session, or the same ephemeral lane."""
        if copy.lane is not None:
            return self._host.of_lane(copy.lane)
        return [older for older in self._host if older.session == copy.session]

    def copy_of(self, slot: Slot) -> HostCopy | None:
        """Its state in host memory, beside the budget; None where it cannot be saved."""
        if slot.session is None or not self._shifting.execute(slot):
            return None
        state = self._backend.save(slot.number)
        if state is None:
            return None
        # Of sliding layers a state has the window alone, however much lives.
        first = max(self._backend.first(slot.number), len(slot.tokens) - self._window if self._window else 0)
        return HostCopy(slot.session, slot.tokens[:], state, first)

    def check_point(self, slot: Slot) -> None:
        """Keep what it takes to come back to here: a turn has ended."""
        if slot.session is None or slot.copied or serves(self._host.checkpoints, slot.tokens, exactly=True):
            return
        if self._backend.partial_size(slot.number) <= self._host.checkpoint_limit:
            state = self._backend.save_partial(slot.number)
            if state is not None:
                self._host.add(HostCopy(slot.session, slot.tokens[:], state, 0, partial=True))

    def loss(self, slot: Slot, kept: int) -> int:
        """How many tokens would have to be computed again if this sequence kept only its first `kept`."""
        lost = max(0, len(slot.tokens) - kept)
        if not lost or self._saved(slot):
            return 0
        savable = not slot.copied and self._backend.state_size(slot.number) <= self._host.budget
        return 0 if savable else lost

    def _saved(self, slot: Slot) -> bool:
        """Whether a host copy serves as well. With windows or recurrent layers, only an equal one does."""
        kept = [self._host.index, self._host.ephemeral] if slot.ephemeral else [self._host.index]
        return any(serves(index, slot.tokens, exactly=self._exact) for index in kept)
