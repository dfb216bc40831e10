"""What a session takes in: the entries that wait, those that are being ingested, and the work on them."""

from __future__ import annotations

from dataclasses import dataclass, field

import trio

from superfluid.daemon.engine.generation import Generation
from superfluid.sessions.backlog import Backlog, Batch


@dataclass(slots=True)
class Intake:
    """One session's queue, and the batch that was taken from it."""

    session: int
    backlog: Backlog
    batch: Batch | None = None
    """what is being ingested: pending no more, and not durable yet"""
    scope: trio.CancelScope | None = None
    """of the task that works on it"""
    ended: trio.Event = field(default_factory=trio.Event)
    job: Generation | None = None
    """what computes the batch"""
    patient_until: float = 0.0
    """until when the batch waits for turns to leave it time to compute"""
    patience: float = 0.0
    """seconds that questions may still hold the batch up"""
    pushed: float = 0.0
    """when something was pushed last"""
    waited_for: bool = False
    """whether somebody waits for KV of what is on the input, which another use of the session has taken"""
    covered: float = 0.0
    """when that was last seen to"""

    @property
    def has_work(self) -> bool:
        """Whether something waits, or is being ingested, or KV is to be computed again."""
        return self.batch is not None or self.backlog.has_work or self.waited_for

    def take(self) -> Batch:
        """What is being ingested: the batch under way, where there is none everything that waits."""
        if self.batch is None:
            self.batch = self.backlog.take()
        return self.batch

    def done(self, lost: int) -> None:
        """The batch is durable; `lost` of its entries were dropped when it was ingested."""
        self.batch = None
        self.backlog.lose(lost)

    def clear(self) -> None:
        """Nobody wants any of it."""
        self.batch, self.waited_for = None, False
        self.backlog.take()
