"""What lanes draw, shown to whoever follows their sessions before it is committed."""

from __future__ import annotations

from collections.abc import Sequence

from superfluid.daemon.bus import Bus
from superfluid.daemon.engine.generation import Shown
from superfluid.daemon.engine.in_flight import InFlight
from superfluid.protocol.codes import Channel


class Provisional:
    def __init__(self, in_flight: InFlight, bus: Bus) -> None:
        self._in_flight = in_flight
        self._bus = bus

    def drawn(self, tokens: Sequence[tuple[int, int]]) -> None:
        """Tokens of some rounds: (lane, token). Lanes whose generation is gone count no more."""
        drawn: dict[int, list[int]] = {}
        for lane, token in tokens:
            drawn.setdefault(lane, []).append(token)
        for lane, run in drawn.items():
            generation = self._in_flight.of_lane(lane)
            if generation is not None:
                self.publish(generation.session, generation.draw(run))

    def publish(self, session: int, shown: Shown) -> None:
        for channel, text in shown:
            if channel is not Channel.TOOL_CALL:  # nobody can do anything with half a call
                self._bus.publish_provisional(session, channel, text)
