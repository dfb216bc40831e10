"""What is in flight: every generation from its queueing to its end, by session and by lane."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import trio

from superfluid.daemon.engine.generation import Generation
from superfluid.protocol.refusals import Refusal, SessionBusy


@dataclass(slots=True)
class Claim:
    """A foreground request that is more than one generation of its session: a question, a turn, an opener."""

    generation: Generation | None = None
    """what it draws, where that is not a generation of the session itself"""
    cancelled: bool = False
    """whether what it draws is to end as soon as it is queued"""


class InFlight:
    """One generation a session. A session is busy while it is in here, or claimed (decision 19)."""

    def __init__(self) -> None:
        self._by_session: dict[int, Generation] = {}
        self._by_lane: dict[int, Generation] = {}
        self._claims: dict[int, Claim] = {}
        self._lanes_given = 0
        self._quiet: dict[int, trio.Event] = {}
        self.begun: list[Callable[[int], None]] = []
        """are told of a session when a foreground request of it begins, so that background work gives way"""
        self.over: list[Callable[[int], None]] = []
        """are told of a session when its last foreground request is over"""

    def next_lane(self) -> int:
        """A lane number that was never used."""
        self._lanes_given += 1
        return self._lanes_given

    def add(self, generation: Generation) -> None:
        self._by_session[generation.session] = generation
        self._begin(generation.session)
        self._by_lane[generation.job.lane] = generation

    @contextmanager
    def claim(self, session: int) -> Iterator[Claim]:
        """Keep the session for a foreground request that is more than one generation of it. Raises SessionBusy."""
        if self.busy(session):
            raise SessionBusy(session)
        claim = self._claims[session] = Claim()
        self._begin(session)
        try:
            yield claim
        finally:
            del self._claims[session]
            self._end(session)

    def _begin(self, session: int) -> None:
        for told in self.begun:
            told(session)

    def _end(self, session: int) -> None:
        if self.busy(session):
            return
        if (quiet := self._quiet.pop(session, None)) is not None:
            quiet.set()
        for told in self.over:
            told(session)

    async def quiet(self, session: int) -> None:
        """Return once no foreground request of the session is under way; another may begin right after."""
        while self.busy(session):
            await self._quiet.setdefault(session, trio.Event()).wait()

    def claimed(self, session: int) -> bool:
        return session in self._claims

    def claim_of(self, session: int) -> Claim | None:
        return self._claims.get(session)

    def busy(self, session: int) -> bool:
        """Whether a foreground request of the session is under way: a generation, a question or a turn."""
        return session in self._by_session or session in self._claims

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
        self._end(generation.session)
