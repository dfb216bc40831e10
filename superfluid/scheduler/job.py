"""A job: one generation that wants a lane."""

from __future__ import annotations

from dataclasses import dataclass, field

from superfluid.protocol.codes import Qos
from superfluid.protocol.records import GenParams
from superfluid.protocol.ticks import LaneOptions

AGE_SECONDS = 10.0
"""Waiting so long counts as one class better, so that nothing starves."""

QUANTUM_SECONDS = 2.0
"""How long a job that got its lane by age keeps the class that age gave it."""


@dataclass(slots=True)
class Job:
    """What a generation asks of the worker, and how far it is.

    `tokens` is everything on its input, packed; `limit` the most tokens it may draw; `offset` how far its draws
    are ahead of its index in `tokens`. `arrived` is seconds on the daemon's clock.
    """

    lane: int
    session: int
    qos: int
    tokens: bytes
    params: GenParams
    offset: int
    limit: int
    arrived: float
    options: LaneOptions = field(default_factory=LaneOptions)
    batch_invariant: bool = False
    passing: bool = False
    """nothing of it is logged, and whoever waits for it sees each token as it is drawn"""
    kv_session: int | None = None
    """whose KV it computes, where that is another one's"""
    drawn: int = 0
    warm: int = 0
    gap: float = 0.0
    """the logit gap of its first token, where it asks for it; 0.0 before"""
    remaining: int | None = None
    """prompt tokens not computed yet; None before the first tick"""
    started: bool = False
    """the worker knows the lane"""
    ran: int = 0
    """the last tick it took part in"""
    waits_since: float | None = None
    """when it began to wait for a lane; None while it has one"""
    lifted_to: int = Qos.BACKGROUND
    lifted_until: float = 0.0
    cancelled: bool = False

    def __post_init__(self) -> None:
        if self.waits_since is None:
            self.waits_since = self.arrived

    @property
    def prompt(self) -> int:
        """Tokens on its input before the first draw."""
        return len(self.tokens) // 4

    @property
    def computed(self) -> int:
        """Prompt tokens whose KV is there, as far as is known."""
        return 0 if self.remaining is None else self.prompt - self.remaining

    @property
    def prefilling(self) -> bool:
        return self.remaining is None or self.remaining > 0

    @property
    def to_compute(self) -> int:
        """Prompt tokens without KV, as far as is known."""
        return self.prompt - self.computed

    def rank(self, now: float) -> int:
        """The class it is served as: its own, or a better one by age."""
        if self.waits_since is not None:
            return max(Qos.INTERACTIVE, self.qos - int((now - self.waits_since) / AGE_SECONDS))
        return min(self.qos, self.lifted_to) if now < self.lifted_until else self.qos

    def take_lane(self, now: float) -> None:
        """It runs from now on."""
        if self.waits_since is not None:
            self.lifted_to, self.lifted_until = self.rank(now), now + QUANTUM_SECONDS
            self.waits_since = None
        self.started = True

    def give_lane(self, now: float) -> None:
        """It pauses; its lane keeps what it has, its KV perhaps not its sequence."""
        self.waits_since = now
