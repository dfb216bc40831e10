"""Use cases Status and Metrics: what the daemon is doing now, and what it has done."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from superfluid import __version__
from superfluid.daemon.book import Book
from superfluid.daemon.engine.room import EngineRoom
from superfluid.daemon.metrics import Now, prometheus
from superfluid.protocol.responses import LaneStatus, StatusReport
from superfluid.protocol.ticks import KvChange
from superfluid.scheduler.job import Job

_TIERS = 3
"""Sequences, host memory, disk: `KvChange.tier` 1, 2 and 3."""


@dataclass(frozen=True, slots=True)
class Watching:
    """Reads only; nothing here waits for the worker."""

    book: Book
    room: EngineRoom
    model: str
    model_path: Path
    started: float

    def status(self) -> StatusReport:
        room, schedule, ready = self.room, self.room.schedule, self.room.ready
        assert ready is not None, "transports are served once the model is loaded"
        sessions, tokens = _by_tier(tuple(room.kv.values()))
        return StatusReport(
            version=__version__,
            pid=os.getpid(),
            uptime=self.uptime_ms() // 1000,
            model=self.model,
            model_path=str(self.model_path),
            devices=ready.devices,
            gpu_layers=ready.gpu_layers,
            threads=room.threads,
            context=ready.context,
            lanes=schedule.lanes,
            running=tuple(_lane(job) for job in schedule.running.values()),
            queue=schedule.queue_by_class(),
            kv_sessions=sessions,
            kv_tokens=tokens,
            prefill_rate=schedule.prefill_rate if schedule.ticks else 0.0,
            decode_rate=schedule.decode_rate,
            sessions=sum(not head.is_request for head in self.book.heads.all_live()),
            respawns=room.respawns,
            ticks=schedule.ticks,
        )

    def uptime_ms(self) -> int:
        return int((time.monotonic() - self.started) * 1000)

    def metrics(self) -> bytes:
        """Prometheus' text format."""
        schedule, now_ms = self.room.schedule, self.book.now_ms()
        now = Now(
            lanes_active=len(schedule.running),
            queue=schedule.queue_by_class(),
            respawns=self.room.respawns,
            preemptions=schedule.preemptions,
            starvation_grants=schedule.starvation_grants,
            pins_held=sum(head.pin_deadline_ms > now_ms for head in self.book.heads.all_live()),
        )
        return prometheus(self.room.metrics, now)


def _lane(job: Job) -> LaneStatus:
    return LaneStatus(
        session=job.session,
        qos_class=job.qos,
        prompt=job.prompt,
        warm=job.warm,
        remaining=job.prompt if job.remaining is None else job.remaining,
        drawn=job.drawn,
    )


def _by_tier(places: tuple[KvChange, ...]) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    sessions, tokens = [0] * _TIERS, [0] * _TIERS
    for place in places:
        sessions[place.tier - 1] += 1
        tokens[place.tier - 1] += place.covered
    return (sessions[0], sessions[1], sessions[2]), (tokens[0], tokens[1], tokens[2])
