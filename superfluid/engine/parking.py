"""When KV goes to disk: in the background while nothing runs, and all of it when the daemon stops.

Nothing here makes a lane wait. A state is handed over only after the daemon has asked for nothing for a moment, one
at a time; a copy that host memory has no room for is offered to the writer, which takes what it has room for itself.
A session that goes on is not written after every turn, but once an eighth of it is new; or, when nothing at all has
happened for a minute, whatever is new.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from superfluid.engine.artifact import header_for, most_bytes
from superfluid.engine.host import HostCopy
from superfluid.engine.park_writer import Job, ParkWriter, Stopped
from superfluid.engine.parks import STATELESS, Artifact, Parks
from superfluid.engine.radix import common, strays
from superfluid.engine.slots import Slot
from superfluid.engine.tiers import Tiers
from superfluid.protocol.ticks import pack, unpack

QUIET = 0.25
"""Seconds without a request before the writer may run: clients of a conversation answer sooner or much later."""
SETTLED = 60.0
"""Seconds without a request after which everything new is written."""
AGAIN = 60.0
"""Seconds before anything is tried again after a write that failed, as on a full disk."""
_STEP = 0.05
_GROWTH = 8
_SEEN = 16
"""So many equal tokens say that what follows them may be equal as well."""
_LARGEST = 256 << 20
"""Bytes of a sequence that is saved in the background: a request that comes meanwhile waits for that, some 50 ms."""
_SPEED = 100e6
"""Bytes a second that a write is taken to manage before one was measured."""


@dataclass(frozen=True, slots=True)
class _Candidate:
    """KV that is not on disk. To write it, what is on disk of `later` sessions, used since, may not be removed: so
    each finds its place by order of use, and a full budget comes to rest."""

    kept: Slot | HostCopy
    session: int
    size: int
    later: frozenset[int]


class Parking:
    """Moves KV from `tiers` to `parks`. `clock` is seconds, of a clock that never steps."""

    def __init__(self, tiers: Tiers, parks: Parks, clock: Callable[[], float] = time.monotonic) -> None:
        self._tiers = tiers
        self._parks = parks
        self._clock = clock
        self._writer = ParkWriter()
        self._asked = clock()
        self._not_before = 0.0
        self._speed = _SPEED
        tiers.host.displaced = self._rescue

    # --- in the background ----------------------------------------------------------------------------------------

    def begin(self) -> None:
        """A request has come."""
        self._writer.pause()
        self._asked = self._clock()

    def idle(self) -> float | None:
        """Nothing is asked: go on for a moment. The seconds after which to call again, None where there is nothing
        to do before the next request."""
        self._collect()
        now = self._clock()
        quiet = now - self._asked
        if quiet < QUIET:
            return QUIET - quiet
        self._writer.resume()
        if now < self._not_before:
            return _STEP if self._writer.busy else self._not_before - now
        if self._writer.takes and (candidate := self._next(grown=quiet < SETTLED)) is not None:
            job = self._job(candidate)
            if job is None or not self._writer.offer(job):
                self._not_before = now + AGAIN
            return _STEP
        if self._writer.busy:
            return _STEP
        return SETTLED - quiet if quiet < SETTLED and self._next(grown=False) is not None else None

    def _next(self, *, grown: bool) -> _Candidate | None:
        """The next to write; with `grown`, only what is a good deal longer than what its session has on disk."""
        for candidate in self._candidates():
            if isinstance(candidate.kept, Slot) and candidate.size > _LARGEST:
                continue
            older = self._parks.of(candidate.session)
            if not (grown and older and _hardly_new(candidate.kept, older)):
                return candidate
        return None

    def _candidates(self) -> Iterator[_Candidate]:
        """What is to be written, the latest used first."""
        later: set[int] = set()
        for kept in self._tiers.residents():
            assert kept.session is not None
            candidate = self._candidate(kept, kept.session, later)
            if candidate is not None:
                yield candidate
            later.add(kept.session)

    def _candidate(self, kept: Slot | HostCopy, session: int, later: set[int]) -> _Candidate | None:
        if session >= STATELESS or self._writer.holds(session) or self._tiers.parked(kept.tokens):
            return None
        size = most_bytes(self._tiers.size_of(kept), len(kept.tokens))
        if not self._parks.fits(size, session, later):
            return None
        return _Candidate(kept, session, size, frozenset(later))

    def _rescue(self, copy: HostCopy) -> None:
        """Host memory has no room for a copy any more. It is written unless its session has something better."""
        if self._clock() < self._not_before or not self._writer.takes:
            return
        older = self._parks.of(copy.session)
        if older is not None and older.tokens[: len(copy.tokens)] == copy.tokens:
            return
        others = {kept.session for kept in self._tiers.residents() if kept.session is not None}
        if copy.session in others:
            return
        candidate = self._candidate(copy, copy.session, others)
        if candidate is not None and (job := self._job(candidate)) is not None:
            self._writer.offer(job)

    def _job(self, candidate: _Candidate) -> Job | None:
        """None where the state cannot be saved."""
        copy = self._tiers.copy_of(candidate.kept)
        if copy is None:
            return None
        self._arrange()
        self._parks.make_room(candidate.size, candidate.session, candidate.later)
        header = header_for(self._parks.key, copy.session, pack(copy.tokens), copy.first, copy.state)
        return Job(header, copy.state, self._parks.path(copy.session), self._parks.temporary(copy.session))

    def _collect(self) -> None:
        jobs = self._writer.collect()
        for job in jobs:
            if job.size is None:
                self._not_before = self._clock() + AGAIN
            else:
                self._written(job, job.size)
        if jobs:
            self._arrange(lasting=True)

    def _written(self, job: Job, size: int) -> None:
        header = job.header
        self._parks.add(Artifact(header.session, unpack(header.tokens), header.first, size))
        self._arrange()
        self._parks.make_room(0)  # several that waited may each have counted on the same room

    def _arrange(self, *, lasting: bool = False) -> None:
        """Put what is on disk in the order in which sessions were used, whatever was written when."""
        sessions = [kept.session for kept in self._tiers.residents() if kept.session is not None]
        self._parks.used(sessions, lasting=lasting)

    # --- on demand ------------------------------------------------------------------------------------------------

    def park(self, seconds: float, sessions: Collection[int] | None = None) -> int:
        """Write everything that is not on disk, or what of these sessions is not, the latest used first, as far as
        the time goes: how many were written."""
        deadline = self._clock() + seconds
        self._writer.resume()
        if not self._writer.rest(seconds):
            return 0
        self._collect()
        written = 0
        for candidate in self._candidates():
            if sessions is not None and candidate.session not in sessions:
                continue
            if self._clock() + candidate.size / self._speed <= deadline:
                written += self._park_one(candidate, deadline)
        self._arrange(lasting=True)
        return written

    def _park_one(self, candidate: _Candidate, deadline: float) -> bool:
        def in_time() -> None:
            if self._clock() > deadline:
                raise Stopped

        began = self._clock()
        job = self._job(candidate)
        if job is None or not self._writer.write(job, in_time) or job.size is None:
            return False
        self._written(job, job.size)
        self._speed = max(candidate.size / max(self._clock() - began, 1e-6), 1e6)
        return True

    def forget(self, sessions: Collection[int]) -> None:
        """On return, no file holds anything of these sessions."""
        self._writer.cancel(sessions)
        self._parks.erase(sessions)

    def forget_strays(self, sessions: Collection[int], stream: array[int]) -> None:
        """On return, no file holds anything of these sessions that is not of `stream`."""
        held = {session for session in sessions if self._writer.holds(session)}
        self._collect()
        kept = {artifact.session for artifact in self._parks if not strays(artifact.tokens, stream)}
        self.forget([session for session in sessions if session in held or session not in kept])

    def close(self) -> None:
        self._writer.close()


def _hardly_new(kept: Slot | HostCopy, older: Artifact) -> bool:
    """Whether most of it is on disk: behind the same front, perhaps after entries that its stream has lost since."""
    front = common(kept.tokens, older.tokens)
    rest, stored = kept.tokens[front:], older.tokens[front:]
    if stored:
        stored = stored[_find(rest[:_SEEN], stored) :]
        if not stored or rest[: len(stored)] != stored:
            return False
    return len(rest) - len(stored) < len(kept.tokens) // _GROWTH


def _find(tokens: array[int], held: array[int]) -> int:
    """Where `tokens` come first in `held`; its length where they do not, or only across two of its own."""
    at = held.tobytes().find(tokens.tobytes()) if tokens else -1
    return len(held) if at < 0 or at % held.itemsize else at // held.itemsize
