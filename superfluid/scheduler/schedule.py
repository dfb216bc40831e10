"""The schedule: who waits, who runs, and the pair that moves it, `plan` and `settle`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from superfluid.protocol.codes import Finish
from superfluid.protocol.ticks import LaneOutcome, LaneStart, Outcome, Tick, unpack
from superfluid.scheduler.job import Job

TICK_TARGET_MS = 250
ROUNDS = 8
"""Most rounds a tick: one commit for all of them. Fewer cost a fifth of the speed, more delay what clients see."""

CHUNK_LEAST, CHUNK_MOST = 32, 512
"""Prompt tokens a round, whatever the measured speed."""

FIRST_PREFILL_RATE = 400.0
"""Prompt tokens a second assumed until one was measured."""


@dataclass(slots=True)
class Schedule:
    """All jobs of one worker. A job is in `waiting` until a tick starts it, then in `running` until it ends."""

    lanes: int
    tick_target_ms: int = TICK_TARGET_MS
    waiting: list[Job] = field(default_factory=list)
    running: dict[int, Job] = field(default_factory=dict)
    leaving: list[int] = field(default_factory=list)
    """lanes that the worker has and nobody wants any more"""
    ticks: int = 0
    prefill_rate: float = FIRST_PREFILL_RATE

    def submit(self, job: Job) -> None:
        self.waiting.append(job)
        self.waiting.sort(key=lambda waiting: waiting.rank)

    def cancel(self, lane: int) -> None:
        """Mark a job; `take_cancelled` or `settle` ends it. Unknown lanes have ended already."""
        for job in (*self.waiting, *self.running.values()):
            if job.lane == lane:
                job.cancelled = True

    def take_cancelled(self) -> tuple[Job, ...]:
        """Remove the cancelled jobs. To be called between ticks."""
        gone = [job for job in (*self.waiting, *self.running.values()) if job.cancelled]
        self.waiting = [job for job in self.waiting if not job.cancelled]
        for job in gone:
            if self.running.pop(job.lane, None) is not None:
                self.leaving.append(job.lane)
        return tuple(gone)

    def worker_died(self) -> tuple[Job, ...]:
        """The jobs that were running, which end with it; those waiting stay for the next worker."""
        gone = tuple(self.running.values())
        self.running.clear()
        self.leaving.clear()
        return gone

    def preempts(self, newcomer: Job) -> bool:
        """Whether a running tick should end early for `newcomer`: a lane is free and it is of a better class."""
        lane_free = len(self.running) + len(self.waiting) <= self.lanes
        return lane_free and all(newcomer.qos < job.qos for job in self.running.values())


@dataclass(frozen=True, slots=True)
class Settled:
    """What a tick did to one job: the tokens it drew, in order, and how it stands."""

    job: Job
    drawn: tuple[int, ...]
    finish: Finish
    fault: int = 0
    detail: str = ""


def plan(schedule: Schedule) -> Tick | None:
    """The next tick, None where nobody has anything to do. Reads only."""
    free = schedule.lanes - len(schedule.running)
    starting = schedule.waiting[:free]
    running = sorted((*schedule.running.values(), *starting), key=lambda job: job.rank)
    if not running and not schedule.leaving:
        return None
    return Tick(
        number=schedule.ticks + 1,
        rounds=ROUNDS if running else 0,
        chunk=_chunk(schedule),
        budget_ms=schedule.tick_target_ms,
        starts=tuple(_start(job) for job in starting),
        run=tuple(job.lane for job in running),
        ends=tuple(schedule.leaving),
    )


def begin(schedule: Schedule, tick: Tick) -> None:
    """The tick was sent: what it starts is running, what it ends is gone."""
    started = {start.lane for start in tick.starts}
    for job in [job for job in schedule.waiting if job.lane in started]:
        schedule.waiting.remove(job)
        schedule.running[job.lane] = job
    schedule.leaving = [lane for lane in schedule.leaving if lane not in tick.ends]
    schedule.ticks = tick.number


def settle(schedule: Schedule, outcome: Outcome) -> tuple[Settled, ...]:
    """Fold the outcome of the tick in. Jobs that ended leave the schedule."""
    if outcome.prefill_tokens and outcome.prefill_us:
        measured = outcome.prefill_tokens * 1e6 / outcome.prefill_us
        schedule.prefill_rate += 0.3 * (measured - schedule.prefill_rate)
    return tuple(_settle_lane(schedule, lane) for lane in _known(schedule, outcome.lanes))


def _known(schedule: Schedule, lanes: Iterable[LaneOutcome]) -> Iterable[LaneOutcome]:
    return [lane for lane in lanes if lane.lane in schedule.running]


def _settle_lane(schedule: Schedule, lane: LaneOutcome) -> Settled:
    job = schedule.running[lane.lane]
    drawn = tuple(unpack(lane.drawn))
    job.drawn += len(drawn)
    job.warm = max(job.warm, lane.warm)
    job.remaining = lane.remaining
    finish = Finish(lane.finish)
    if finish is not Finish.OPEN:
        del schedule.running[lane.lane]  # the worker has let go of it by itself
    return Settled(job, drawn, finish, lane.fault, lane.detail)


def _chunk(schedule: Schedule) -> int:
    """Prompt tokens that a round of half the tick's time can hold."""
    fitting = int(schedule.prefill_rate * schedule.tick_target_ms / 2000)
    return max(CHUNK_LEAST, min(CHUNK_MOST, fitting))


def _start(job: Job) -> LaneStart:
    return LaneStart(
        lane=job.lane,
        session=job.session,
        tokens=job.tokens,
        params=job.params,
        offset=job.offset,
        limit=job.limit,
        options=job.options,
    )
