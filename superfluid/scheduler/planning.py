"""`plan` a tick, `begin` it, `settle` what came of it. `plan` only reads; the other two are the only writers.

A plan is of use until the schedule changes: `begin` takes it with nothing in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from superfluid.protocol.codes import Finish, Qos
from superfluid.protocol.ticks import LaneOutcome, LaneStart, Outcome, Tick, unpack
from superfluid.scheduler.job import Job
from superfluid.scheduler.schedule import Schedule

ROUNDS = 8
"""Most rounds a tick: one commit for all of them. Fewer cost a fifth of the speed, more delay what clients see."""

PASSING_ROUNDS = 64
"""The same where there is nothing to commit, and clients see tokens before its end. The worker stands still
between the end of a tick and the next."""

ROUND_SECONDS = 0.5
"""What a round with prompt tokens may take: streams pause for so long, and shorter ones cost speed. A newcomer of a
better class ends it in the middle."""

CHUNK_STEP, CHUNK_MOST = 32, 512
"""Prompt tokens a round come in such steps, at least one: with 44 a CPU prefills a fifth slower than with 64."""

INVARIANT_CHUNK = 256
"""Prompt tokens a round of a batch-invariant lane: the same at any speed."""

_LEARN = 0.3
"""Weight of the latest tick in the measured rates."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What the next tick is, and who has a lane in it."""

    tick: Tick
    seated: tuple[int, ...]
    """lanes, in the order of service; some may sit this tick out"""
    at: float
    """when it was made, in seconds on the daemon's clock"""


@dataclass(frozen=True, slots=True)
class Settled:
    """What a tick did to one job: the tokens it drew, in order, and how it stands."""

    job: Job
    drawn: tuple[int, ...]
    finish: Finish
    fault: int = 0
    detail: str = ""
    gap: float = 0.0


def plan(schedule: Schedule, now: float) -> Plan | None:
    """The next tick, None where nobody has anything to do."""
    seated = _choose(schedule, now)
    number = schedule.ticks + 1
    ticking = _ticking(schedule, seated, number)
    if not ticking and not schedule.leaving:
        return None
    invariant = len(ticking) == 1 and ticking[0].batch_invariant
    tick = Tick(
        number=number,
        rounds=_rounds(ticking),
        chunk=INVARIANT_CHUNK if invariant else _chunk(schedule),
        budget_ms=schedule.tick_target_ms,
        starts=tuple(_start(job) for job in ticking if not job.started),
        run=tuple(job.lane for job in ticking),
        ends=tuple(schedule.leaving),
    )
    return Plan(tick, tuple(job.lane for job in seated), now)


def _rounds(ticking: Sequence[Job]) -> int:
    if not ticking:
        return 0
    return PASSING_ROUNDS if all(job.passing for job in ticking) else ROUNDS


def _choose(schedule: Schedule, now: float) -> list[Job]:
    """The jobs that have a lane in the next tick, in the order of service.

    Best class first, age included; within a class those that run keep their lanes, then first come, first served. A
    job whose front another one is computing waits for it, and that one is served as the best of those who wait.
    """
    awaiting = _awaiting(schedule)
    ranks = {job.lane: job.rank(now) for job in schedule.jobs}
    for lane, other in awaiting.items():
        ranks[other.lane] = min(ranks[other.lane], ranks[lane])

    def place(job: Job) -> tuple[int, bool, float, int]:
        return ranks[job.lane], job.waits_since is not None, job.arrived, job.lane

    seated: dict[int, Job] = {}
    taken = dict.fromkeys(Qos, 0)
    # Who waits for a front comes after who does not, and only where that one has no lane itself (a capped class).
    for job in sorted(schedule.jobs, key=lambda job: (job.lane in awaiting, place(job))):
        if job.lane in awaiting and awaiting[job.lane].lane in seated:
            continue
        qos = Qos(job.qos)
        if len(seated) < schedule.lanes and taken[qos] < schedule.class_lanes.get(qos, schedule.lanes):
            taken[qos] += 1
            seated[job.lane] = job
    return sorted(seated.values(), key=lambda job: (ranks[job.lane], job.remaining or 0, job.arrived, job.lane))


def _awaiting(schedule: Schedule) -> dict[int, Job]:
    """For the lanes that had better wait, who computes what they need. Chains are cut: the first in them computes."""
    awaiting: dict[int, Job] = {}
    others = {job.lane: job for job in schedule.jobs}
    for job in sorted(schedule.jobs, key=lambda job: (job.arrived, job.lane)):
        if not job.started:
            other = schedule.sharing.awaited(job, others)
            if other is not None:
                awaiting[job.lane] = other
                del others[job.lane]
    return awaiting


def _ticking(schedule: Schedule, seated: Sequence[Job], number: int) -> list[Job]:
    """Those of the seated that take part in this tick: slowed classes not always, where nobody better waits for what
    they compute; invariant lanes alone.

    Of an invariant lane and all others together, those have the tick of whom one ran longest ago.
    """
    ticking = list(seated)
    if number - schedule.slowed_ran < schedule.background_divisor:
        hurried = _hurried(schedule)
        ticking = [job for job in ticking if job.qos < Qos.AGENT or job.lane in hurried] or ticking
    ticking = _without_fill(ticking, number, _chunk(schedule))
    groups = [[job] for job in ticking if job.batch_invariant]
    together = [job for job in ticking if not job.batch_invariant]
    if together:
        groups.insert(0, together)
    return min(groups, key=lambda group: min(job.ran for job in group), default=[])


def _hurried(schedule: Schedule) -> set[int]:
    """The lanes whose front one waits for that is of no slowed class."""
    quick = {job.lane for job in schedule.jobs if job.qos < Qos.AGENT}
    return {other.lane for lane, other in _awaiting(schedule).items() if lane in quick}


def _without_fill(ticking: list[Job], number: int, chunk: int) -> list[Job]:
    """Those without long prompts that would only fill up a round after a prompt of a better class, and so delay its
    first token; never twice in a row for the same one."""
    best = min((job.qos for job in ticking if job.prefilling), default=Qos.BACKGROUND)
    fill = [job for job in ticking if job.qos > best and job.to_compute > chunk and job.ran == number - 1]
    return [job for job in ticking if job not in fill]


def begin(schedule: Schedule, planned: Plan) -> None:
    """The tick is sent: who runs in it has a lane, who ran before and is not seated waits again."""
    tick, now = planned.tick, planned.at
    jobs = {job.lane: job for job in schedule.jobs}
    seated = [jobs[lane] for lane in planned.seated]
    for job in seated:
        if job.started or job.lane in tick.run:
            schedule.starvation_grants += job.waits_since is not None and job.rank(now) < job.qos
            job.take_lane(now)
        if job.lane in tick.run:
            job.ran = tick.number
            if job.qos >= Qos.AGENT:
                schedule.slowed_ran = tick.number
    running = {job.lane: job for job in seated if job.started}
    for job in schedule.jobs:
        if job.started and job.lane not in running and job.waits_since is None:
            job.give_lane(now)
            schedule.preemptions += 1
    schedule.waiting = [job for job in schedule.jobs if job.lane not in running]
    schedule.running = running
    schedule.leaving = [lane for lane in schedule.leaving if lane not in tick.ends]
    schedule.ticks = tick.number


def settle(schedule: Schedule, outcome: Outcome) -> tuple[Settled, ...]:
    """Fold the outcome of the tick in. Jobs that ended leave the schedule."""
    if outcome.prefill_tokens and outcome.prefill_us:
        measured = outcome.prefill_tokens * 1e6 / outcome.prefill_us
        schedule.prefill_rate += _LEARN * (measured - schedule.prefill_rate)
    if outcome.decode_tokens and outcome.elapsed_us:
        measured = outcome.decode_tokens * 1e6 / outcome.elapsed_us
        schedule.decode_rate += _LEARN * (measured - schedule.decode_rate)
    known = {job.lane: job for job in schedule.jobs if job.started}
    return tuple(_settle_lane(schedule, known[lane.lane], lane) for lane in outcome.lanes if lane.lane in known)


def _settle_lane(schedule: Schedule, job: Job, lane: LaneOutcome) -> Settled:
    drawn = tuple(unpack(lane.drawn))
    job.drawn += len(drawn)
    job.warm = max(job.warm, lane.warm)
    job.gap = max(job.gap, lane.gap)
    job.remaining = lane.remaining
    finish = Finish(lane.finish)
    if finish is not Finish.OPEN:
        schedule.remove(job)  # the worker has let go of it by itself
    return Settled(job, drawn, finish, lane.fault, lane.detail, job.gap)


def _chunk(schedule: Schedule) -> int:
    """Prompt tokens that fit into a round, in steps of what matrix kernels take at once."""
    fitting = schedule.prefill_rate * ROUND_SECONDS
    return max(CHUNK_STEP, min(CHUNK_MOST, CHUNK_STEP * round(fitting / CHUNK_STEP)))


def _start(job: Job) -> LaneStart:
    return LaneStart(
        lane=job.lane,
        session=job.session if job.kv_session is None else job.kv_session,
        tokens=job.tokens,
        params=job.params,
        offset=job.offset,
        limit=job.limit,
        options=job.options,
    )
