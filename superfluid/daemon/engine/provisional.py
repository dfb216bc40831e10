"""What lanes draw, shown to whoever follows their sessions before it is committed."""

from __future__ import annotations

from collections.abc import Sequence

from superfluid.daemon.bus import Bus
from superfluid.daemon.engine.generation import Shown
from superfluid.daemon.engine.in_flight import InFlight
from superfluid.protocol.codes import Channel
from superfluid.protocol.ticks import Outcome, unpack


class Provisional:
    def __init__(self, in_flight: InFlight, bus: Bus) -> None:
        self._in_flight = in_flight
        self._bus = bus
        self._told: dict[int, int] = {}
        """how many tokens of the tick under way are known, by lane"""

    def drawn(self, tokens: Sequence[tuple[int, int]]) -> None:
        """Tokens of some rounds: (lane, token). Lanes whose generation is gone count no more."""
        drawn: dict[int, list[int]] = {}
        for lane, token in tokens:
            drawn.setdefault(lane, []).append(token)
        for lane, run in drawn.items():
            self._told[lane] = self._told.get(lane, 0) + len(run)
            self._draw(lane, run)

    def rest(self, outcome: Outcome) -> None:
        """What a tick drew after it told of tokens for the last time."""
        told, self._told = self._told, {}
        for lane in outcome.lanes:
            if run := unpack(lane.drawn)[told.get(lane.lane, 0) :]:
                self._draw(lane.lane, run)

    def _draw(self, lane: int, run: Sequence[int]) -> None:
        generation = self._in_flight.of_lane(lane)
        if generation is not None:
            self.publish(generation.session, generation.draw(run))

    def publish(self, session: int, shown: Shown) -> None:
        for channel, text in shown:
            if channel is not Channel.TOOL_CALL:  # nobody can do anything with half a call
                self._bus.publish_provisional(session, channel, text)
