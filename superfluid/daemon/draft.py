"""Records to be, and the transaction that makes them durable: made out here from values alone, in whatever thread."""

from __future__ import annotations

from dataclasses import dataclass, replace

from superfluid.protocol.records import EpochBump, Event, EventBody, size_of
from superfluid.sessions import snapshot
from superfluid.sessions.heads import Head
from superfluid.sessions.state import SessionState
from superfluid.store.log import Change

LONG = 1 << 16
"""How long records are together (`records.size_of`) that are folded and encoded in a thread before they are written:
for the tokens of a long text that takes seconds, in which neither the event loop nor other writers may wait."""


@dataclass(frozen=True, slots=True)
class Draft:
    """Records to be: the bodies for one session, in order."""

    state: SessionState
    bodies: tuple[EventBody, ...]

    @property
    def takes_long(self) -> bool:
        """Whether it is a long one, or may bring a snapshot of all that there is."""
        events = self.state.events
        is_long = sum(map(size_of, self.bodies)) >= LONG
        return is_long or (events + len(self.bodies) + 1) // snapshot.EVERY != events // snapshot.EVERY

    def prepared(self, head: Head, now_ms: int, *, bump: bool) -> Prepared:
        """What it does to the session with that head; with `bump`, an `EpochBump` comes first. Changes nothing."""
        state, bodies, epoch = self.state, self.bodies, self.state.epoch
        if bump:
            bodies, epoch = (EpochBump(), *bodies), epoch + 1
        events = tuple(Event(state.events + place, epoch, now_ms, body) for place, body in enumerate(bodies))
        after = state.copy()  # until the transaction returns, nobody may see it
        for event in events:
            after.apply(event)
        due = snapshot.due((state.events, state.ever), after)
        head = head.after(after)
        head = head.tombstone() if after.purged else head
        return Prepared(self, Change(head, events, snapshot.dump(after) if due and not after.purged else None), after)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A draft, the transaction that it makes, and the state after it, which nobody may see before it is durable."""

    draft: Draft
    change: Change
    after: SessionState

    @property
    def session(self) -> int:
        return self.change.head.id

    @property
    def events(self) -> tuple[Event, ...]:
        """Those of the draft's bodies."""
        return self.change.events[len(self.change.events) - len(self.draft.bodies) :]

    def encoded(self) -> Prepared:
        """With its records as they are stored."""
        return replace(self, change=self.change.encoded())
