"""How many cores this process may use, and how many of them other processes keep busy."""

from __future__ import annotations

import math
import os
import resource
from dataclasses import dataclass
from pathlib import Path

import psutil

_QUOTA = Path("/sys/fs/cgroup/cpu.max")
_NOT_BUSY = ("idle", "iowait", "steal", "guest", "guest_nice")
"""Times that are no work of this machine's processes; guest time is counted as user time already."""


@dataclass(frozen=True, slots=True)
class Reading:
    """CPU seconds since some fixed moment: of everything on our cores, of this process, and of the daemon."""

    busy: float
    ours: float
    daemon: float = 0.0


def usable_cores() -> tuple[int, ...]:
    """The logical cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(psutil.cpu_count() or 1))


def thread_limit() -> int:
    """The most compute threads that can pay: physical cores, within affinity and the cgroup's quota; at least 1."""
    cores = len(usable_cores())
    physical = psutil.cpu_count(logical=False) or cores
    return max(1, min(physical, cores, _quota()))


def _quota() -> int:
    """The cgroup's CPU quota in whole cores, a large number where there is none."""
    try:
        limit, period = _QUOTA.read_text().split()
        return math.ceil(int(limit) / int(period))
    except (OSError, ValueError):
        return 1 << 16


class Neighbours:
    """Reads the system's times, and of the daemon, our parent, its own."""

    def __init__(self) -> None:
        self._cores = usable_cores()
        try:
            self._daemon: psutil.Process | None = psutil.Process(os.getppid())
        except psutil.Error:
            self._daemon = None

    def read(self) -> Reading | None:
        """The times now, None where the system does not tell."""
        try:
            each = psutil.cpu_times(percpu=True)
            busy = sum(_busy(each[core]) for core in self._cores)
        except (psutil.Error, OSError, IndexError, NotImplementedError):
            return None
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return Reading(busy=busy, ours=usage.ru_utime + usage.ru_stime, daemon=self._daemon_time())

    def _daemon_time(self) -> float:
        if self._daemon is None:
            return 0.0
        try:
            times = self._daemon.cpu_times()
        except (psutil.Error, OSError):
            self._daemon = None
            return 0.0
        return float(times.user + times.system)


def _busy(times: object) -> float:
    fields: dict[str, float] = times._asdict()  # type: ignore[attr-defined]
    return sum(value for name, value in fields.items() if name not in _NOT_BUSY)
