"""The schedule: every job of one worker, who runs and who waits. `planning` decides about it and moves it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from superfluid.protocol.codes import Qos
from superfluid.protocol.refusals import QueueFull
from superfluid.scheduler.job import Job
from superfluid.scheduler.sharing import Sharing

TICK_TARGET_MS = 250
MAX_WAITING = 256
"""Jobs that may wait; one more is refused at once."""

FIRST_PREFILL_RATE = 400.0
"""Prompt tokens a second assumed until some were measured."""


@dataclass(slots=True)
class Schedule:
    """A job is in `waiting` until a tick runs it, then in `running`; one that lost its lane waits again."""

    lanes: int
    tick_target_ms: int = TICK_TARGET_MS
    max_waiting: int = MAX_WAITING
    class_lanes: Mapping[int, int] = field(default_factory=dict)
    """most lanes of a class, for the classes that have a cap"""
    background_divisor: int = 1
    """agents and background jobs take part in one tick of so many"""
    waiting: list[Job] = field(default_factory=list)
    running: dict[int, Job] = field(default_factory=dict)
    leaving: list[int] = field(default_factory=list)
    """lanes that the worker has and nobody wants any more"""
    sharing: Sharing = field(default_factory=Sharing)
    reserved: int = 0
    """places in the queue for generations that are about to come"""
    slowed_ran: int = 0
    """the last tick in which agents or background jobs took part"""
    ticks: int = 0
    preemptions: int = 0
    """times that a job lost its lane to another one"""
    starvation_grants: int = 0
    """times that a job got its lane because of the class that waiting gave it"""
    prefill_rate: float = FIRST_PREFILL_RATE
    decode_rate: float = 0.0

    @property
    def jobs(self) -> tuple[Job, ...]:
        return (*self.running.values(), *self.waiting)

    def check_queue(self) -> None:
        """Raises QueueFull where too many wait already, those not counted that the next tick seats."""
        free = max(0, self.lanes - len(self.running))
        waiting = sum(1 for job in self.waiting if not job.cancelled) + self.reserved - free
        if waiting >= self.max_waiting:
            raise QueueFull(waiting, retry_after=1 + waiting // self.lanes)

    @contextmanager
    def reserve(self) -> Iterator[None]:
        """Keep a place in the queue for a job that is submitted right after. Raises QueueFull."""
        self.check_queue()
        self.reserved += 1
        try:
            yield
        finally:
            self.reserved -= 1

    def submit(self, job: Job) -> None:
        """Queue a job. Raises QueueFull."""
        self.check_queue()
        self.sharing.add(job, self.jobs)
        self.waiting.append(job)

    def cancel(self, lane: int) -> None:
        """Mark a job; `take_cancelled` or `settle` ends it. Unknown lanes have ended already."""
        for job in self.jobs:
            if job.lane == lane:
                job.cancelled = True

    def take_cancelled(self) -> tuple[Job, ...]:
        """Remove the cancelled jobs. To be called between ticks."""
        gone = tuple(job for job in self.jobs if job.cancelled)
        for job in gone:
            self.remove(job)
            if job.started:
                self.leaving.append(job.lane)
        return gone

    def worker_died(self) -> tuple[Job, ...]:
        """The jobs that had begun, which end with it; those that had not wait for the next worker."""
        gone = tuple(job for job in self.jobs if job.started)
        for job in gone:
            self.remove(job)
        self.leaving.clear()
        return gone

    def remove(self, job: Job) -> None:
        """The job is over."""
        self.running.pop(job.lane, None)
        self.waiting = [waiting for waiting in self.waiting if waiting is not job]
        self.sharing.remove(job.lane)

    def preempts(self, newcomer: Job) -> bool:
        """Whether the tick under way should end early, since `newcomer` will run in the next one."""
        if not self.running:
            return False
        ahead = sum(job.qos <= newcomer.qos for job in self.waiting if job is not newcomer and not job.cancelled)
        lane_free = len(self.running) + ahead < self.lanes
        return lane_free or any(newcomer.qos < job.qos for job in self.running.values())

    def urgent(self, newcomer: Job) -> bool:
        """Whether a round with prompts of a worse class had better be given up for `newcomer`."""
        return any(job.prefilling and newcomer.qos < job.qos for job in self.running.values())

    def queue_by_class(self) -> tuple[int, int, int, int]:
        """Jobs that wait, by class."""
        counts = [0, 0, 0, 0]
        for job in self.waiting:
            counts[Qos(job.qos)] += 1
        return counts[0], counts[1], counts[2], counts[3]
