"""How the data of a timeline leaves its stream, and what is left of a batch whose data the log keeps no more.

Every entry that was ever pushed and ingested has an ordinal in its timeline, from 1. Data leave oldest first, so how
much of them has left by some event is one number.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from superfluid.protocol.records import Erased, Ingested, batch_of


@dataclass(frozen=True, slots=True)
class Fading:
    """A timeline as it was with its first `reached` events: of `ingested` entries, the first `gone` had left the
    stream, those that never were in it included."""

    reached: int = 0
    ingested: int = 0
    gone: int = 0

    def after(self, event_id: int, body: Ingested | Erased) -> Fading:
        """With one batch more."""
        batch = batch_of(body)
        unseen = sum(not entry.span for entry in batch.entries)
        leaving = max(0, min(batch.evicted - unseen, self.ingested - self.gone))
        return Fading(event_id + 1, self.ingested + len(batch.entries), self.gone + leaving + unseen)

    def up_to(self, event_id: int) -> Fading:
        """With all events before that one, of which the others are no batches."""
        return replace(self, reached=event_id)


def size(body: Ingested | Erased) -> int:
    """The number of entries of a batch."""
    return len(body.entries) + gone(body)


def gone(body: Ingested | Erased) -> int:
    """How many of them are erased."""
    return len(body.erased) if isinstance(body, Erased) else 0


def erased(body: Ingested | Erased, count: int) -> Erased:
    """What is left of a batch without the texts and tokens of its first `count` entries. Never longer on disk."""
    before = body.erased if isinstance(body, Erased) else ()
    more = body.entries[: max(0, count - len(before))]
    return Erased(
        entries=body.entries[len(more) :],
        erased=before + tuple(len(entry.span) for entry in more),
        version=body.version,
        head=body.head,
        evicted=body.evicted,
        dropped=body.dropped,
    )
