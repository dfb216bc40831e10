"""The feed of a session: the data that its stream holds, what became of the rest, and its standing questions.

Every session has one; most are empty. The fold of the records is in `state`, which owns the stream.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from superfluid.protocol.records import ERASED
from superfluid.sessions.cuts import Cuts

Extent = tuple[int, int]
"""Where an entry stands in the stream: its first position, and its length in tokens."""


@dataclass(frozen=True, slots=True)
class Flash:
    """A standing question and its latest answer; `value` None before the first."""

    query: str
    max_tokens: int
    value: str | None = None
    version: int = 0
    """the data version that it was answered at"""
    confidence: float = 0.0
    answered_ms: int = 0
    ever: int = 0
    """`SessionState.ever` when it was answered: more on the input since, and the answer is stale"""


@dataclass(slots=True)
class FeedState:
    """The feed, folded. `entries` are those in the stream, oldest first."""

    name: str | None = None
    window: int | None = None
    """most tokens of data in the stream; None is append-only"""
    pre_decode: bool = False
    version: int = 0
    """rises with every batch and every rewind"""
    entries: list[Extent] = field(default_factory=list)
    detached: list[array[int]] = field(default_factory=list)
    """tokens of entries that a rewind took out of the stream and `Restored` puts back, oldest first"""
    ordinals: list[int] = field(default_factory=list)
    """of `entries` and of `detached` behind them: the how manieth entry ever each is, from 1"""
    ingested: int = 0
    """entries ever, in batches"""
    evicted: int = 0
    dropped: int = 0
    frozen_end: int | None = None
    """position of the first data token; what is before it never leaves by the window"""
    flashes: dict[int, Flash] = field(default_factory=dict)
    last_flash: int = 0

    @property
    def taken(self) -> int:
        """The ordinal of the last entry about which is decided: it is ingested or dropped (decision 31)."""
        return self.ingested + self.dropped

    @property
    def tokens(self) -> int:
        """Length of the data in the stream."""
        return sum(length for _, length in self.entries)

    def copy(self) -> FeedState:
        return replace(
            self,
            entries=self.entries[:],
            detached=self.detached[:],
            ordinals=self.ordinals[:],
            flashes=self.flashes.copy(),
        )

    def is_whole(self, tokens: array[int]) -> bool:
        """Whether the log still has all the data that is in the stream `tokens`, or waits to be put back."""
        waiting = any(ERASED in entry for entry in self.detached)
        return not waiting and all(tokens[start] != ERASED for start, _ in self.entries)

    def number(self, unseen: int, seen: int) -> None:
        """A batch of so many entries comes, of which the first `unseen` never are in the stream."""
        held, first = len(self.entries), self.ingested + unseen + 1
        self.ordinals[held:held] = range(first, first + seen)
        self.ingested += unseen + seen

    def begin_timeline(self) -> None:
        """A fork takes over the data and how it is taken in; name and questions stay with the parent."""
        self.name = None
        self.flashes, self.last_flash = {}, 0

    def evict(self, count: int) -> Cuts:
        """Let go of the oldest `count` entries, or of as many as there are; what leaves the stream."""
        gone = self.entries[: max(count, 0)]
        del self.entries[: len(gone)]
        del self.detached[: max(count, 0) - len(gone)]
        del self.ordinals[: max(count, 0)]
        return Cuts((start, start + length) for start, length in gone)

    def move(self, moved: Callable[[int], int]) -> None:
        """Tokens left the stream; `moved` says where the others are."""
        self.entries = [(moved(start), length) for start, length in self.entries]
        if self.frozen_end is not None:
            self.frozen_end = moved(self.frozen_end)

    def put(self, start: int, length: int) -> None:
        """An entry was put on the input."""
        self.entries.append((start, length))
        if self.frozen_end is None:
            self.frozen_end = start

    def detach(self, cut: int, tokens: array[int]) -> None:
        """The stream ends at `cut` from now on; entries behind it wait to be restored. `tokens` is what it was."""
        behind = [(start, length) for start, length in self.entries if start >= cut]
        held = len(self.entries)
        kept = held - len(behind)
        self.ordinals = [*self.ordinals[:kept], *self.ordinals[held:], *self.ordinals[kept:held]]
        self.entries = self.entries[:kept]
        self.detached += [tokens[start : start + length] for start, length in behind]
        if self.frozen_end is not None and self.frozen_end >= cut:
            self.frozen_end = None

    def restore(self) -> list[array[int]]:
        """The entries that waited; they wait no more."""
        waiting, self.detached = self.detached, []
        return waiting
