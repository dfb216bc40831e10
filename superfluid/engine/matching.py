"""What of all that is kept could serve a lane's tokens, and what of it serves best."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from superfluid.engine.backend import Backend
from superfluid.engine.host import HostCopy
from superfluid.engine.parks import Artifact
from superfluid.engine.prefixes import usable
from superfluid.engine.radix import RadixIndex, common
from superfluid.engine.slots import Slot

WORTH_MOVING = 8
"""A match with another session that is shorter is prefilled: copying a stream costs as much whatever its length."""

READ_PER_PREFILL = 32
"""An artifact is read whole: as long as computing one in so many of its tokens takes, at most."""

ENOUGH = 4
"""So many of the best in host memory, and on disk, are looked at; others come into play where these fail to load."""

Kept = TypeVar("Kept", HostCopy, Artifact)


@dataclass(frozen=True, slots=True)
class Match:
    """Something that can serve the first `length` tokens, with the help of a checkpoint or without; `cost` ranks
    equals."""

    length: int
    cost: int
    source: Slot | HostCopy | Artifact
    checkpoint: HostCopy | None = None

    @property
    def worth(self) -> int:
        """Its length, less what could be computed while getting at it."""
        if isinstance(self.source, Artifact):
            return self.length - WORTH_MOVING - len(self.source.tokens) // READ_PER_PREFILL
        return self.length


class Matcher:
    """Searches for one session's tokens, of which at most `limit` may come from kept KV. With no session, nothing
    that is found counts as the searcher's own."""

    def __init__(self, backend: Backend, session: int | None, tokens: array[int], limit: int) -> None:
        self._backend = backend
        self._traits = backend.traits
        self._session = session
        self._tokens = tokens
        self._limit = limit
        self._matches: list[Match] = []
        self._checkpoints: list[HostCopy] = []

    def best_first(self) -> list[Match]:
        return sorted(self._matches, key=lambda match: (-match.worth, match.cost))

    def use(self, checkpoints: RadixIndex[HostCopy]) -> None:
        """Partial states that may help where a sequence cannot just be cut. Call this first."""
        for shared, checkpoint in checkpoints.ranked(self._tokens):
            if not shared:
                break
            if shared == len(checkpoint.tokens) <= self._limit:
                self._checkpoints.append(checkpoint)

    def look_at(self, slots: Iterable[Slot]) -> None:
        """Sequences: these few are compared one by one, since they grow with every round."""
        for slot in slots:
            own = slot.idle and slot.session == self._session
            if not slot.tokens or (slot.copied and not own):
                continue
            first = self._backend.first(slot.number) if self._traits.window else 0
            shared = common(slot.tokens, self._tokens)
            # Where a copy waits for its decode, a checkpoint restored would be overwritten by it, or copied along.
            waits = slot.copied or (own and slot.lent)
            self._consider(slot, 0 if own else 1, shared, first, own=own, rewinds=not waits)

    def look_up(self, index: RadixIndex[Kept], cost: int, least: int = 1) -> None:
        """Host copies or artifacts, of which there may be thousands, that share `least` tokens or more."""
        found = 0
        for shared, kept in index.ranked(self._tokens):
            if shared < least or found == ENOUGH:
                return
            if len(kept.tokens) <= self._traits.context:
                own = kept.session == self._session
                found += self._consider(kept, cost, shared, kept.first, own=own)

    def _consider(
        self,
        source: Slot | HostCopy | Artifact,
        cost: int,
        shared: int,
        first: int,
        *,
        own: bool,
        rewinds: bool = True,
    ) -> bool:
        length = usable(self._traits, shared, len(source.tokens), first, self._limit)
        match = Match(length, cost, source)
        # They come longest first: the first one that the source covers.
        covered = (one for one in self._checkpoints if len(one.tokens) <= shared) if rewinds else iter(())
        checkpoint = next(covered, None)
        if checkpoint is not None and len(checkpoint.tokens) > length:
            match = Match(len(checkpoint.tokens), cost, source, checkpoint)
        if match.worth < (1 if own else WORTH_MOVING):
            return False
        self._matches.append(match)
        return True


def serves(index: RadixIndex[Kept], tokens: array[int], *, exactly: bool) -> bool:
    """Whether something in an index holds all of these tokens; with `exactly`, nothing behind them."""
    for shared, kept in index.ranked(tokens):
        if shared < len(tokens):
            return False
        if not exactly or len(kept.tokens) == len(tokens):
            return True
    return False
