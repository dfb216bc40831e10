"""A job: one generation that wants a lane."""

from __future__ import annotations

from dataclasses import dataclass, field

from superfluid.protocol.records import GenParams
from superfluid.protocol.ticks import LaneOptions


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
    drawn: int = 0
    warm: int = 0
    remaining: int | None = None
    """prompt tokens not computed yet; None before the first tick"""
    cancelled: bool = False

    @property
    def rank(self) -> tuple[int, float, int]:
        """Order of service: class, then arrival."""
        return (self.qos, self.arrived, self.lane)
