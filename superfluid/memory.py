"""How much memory this process may use: what the machine has, within the limits of its control groups.

A container or a service with a limit is ended by the kernel when it goes past it, however much the machine has left.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

_GROUPS = Path("/sys/fs/cgroup")
_OURS = Path("/proc/self/cgroup")


@dataclass(frozen=True, slots=True)
class Memory:
    """What there is where it is scarcest: in the machine, or in a group with a limit."""

    total: int
    """bytes"""
    free: int
    """bytes that can be had without swapping, caches of files included"""
    used_percent: float
    """what cannot be had, in hundredths"""


@dataclass(frozen=True, slots=True)
class _Scope:
    """The machine, or a group: bytes."""

    total: int
    free: int

    @property
    def used_percent(self) -> float:
        return 100 * (1 - self.free / self.total) if self.total else 100.0


def memory(groups: Path = _GROUPS, ours: Path = _OURS) -> Memory:
    """What there is now. A machine without memory left and a group that has some are both looked at for each."""
    machine = psutil.virtual_memory()
    scopes = [_Scope(machine.total, machine.available), *_limits(groups, ours)]
    return Memory(
        total=min(scope.total for scope in scopes),
        free=min(scope.free for scope in scopes),
        used_percent=max(scope.used_percent for scope in scopes),
    )


def _limits(groups: Path, ours: Path) -> Iterator[_Scope]:
    """The limits of the control groups (version 2) around this process; none where there are none, or no groups."""
    try:
        lines = ours.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        if not line.startswith("0::/"):
            continue
        group = groups / line.removeprefix("0::/")
        for place in (group, *group.parents):
            if (limit := _limit(place)) is not None:
                yield limit
            if place == groups:
                break


def _limit(group: Path) -> _Scope | None:
    try:
        limit = int((group / "memory.max").read_text())
        used = int((group / "memory.current").read_text())
        kinds = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        files = int(kinds["active_file"]) + int(kinds["inactive_file"])
    except (OSError, ValueError, KeyError):
        return None  # a group without a limit says "max"
    return _Scope(limit, min(limit, max(0, limit - used + files)))
