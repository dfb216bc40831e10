"""What is in flight: every generation from its queueing to its end, by session and by lane."""

from __future__ import annotations

from superfluid.daemon.generation import Generation
from superfluid.protocol.refusals import Refusal


class InFlight:
    """One generation a session. A session is busy while it is in here."""

    def __init__(self) -> None:
        self._by_session: dict[int, Generation] = {}
        self._by_lane: dict[int, Generation] = {}
        self._lanes_given = 0

    def next_lane(self) -> int:
        """A lane number that was never used."""
        self._lanes_given += 1
        return self._lanes_given

    def add(self, generation: Generation) -> None:
        self._by_session[generation.session] = generation
        self._by_lane[generation.job.lane] = generation

    def of_session(self, session: int) -> Generation | None:
        return self._by_session.get(session)

    def of_lane(self, lane: int) -> Generation | None:
        return self._by_lane.get(lane)

    def all(self) -> tuple[Generation, ...]:
        return tuple(self._by_lane.values())

    def drop(self, generation: Generation, refusal: Refusal) -> None:
        """It ends with an error."""
        generation.fail(refusal)
        self.release(generation)

    def release(self, generation: Generation) -> None:
        self._by_lane.pop(generation.job.lane, None)
        # After a failed commit the session may be generating again before the old lane is gone.
        if self._by_session.get(generation.session) is generation:
            del self._by_session[generation.session]
