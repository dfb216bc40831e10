"""Which prompts share a long front: the second to come waits for the first to compute it, and takes its KV."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from superfluid.scheduler.job import Job

LEAST = 256
"""Shared tokens from which on waiting is worth it."""

_TOKEN = 4


@dataclass(slots=True)
class Sharing:
    """The shared fronts of all jobs under way, compared once, when a job comes."""

    _shared: dict[int, dict[int, int]] = field(default_factory=dict)
    """for each lane, the lanes that came before it and the tokens they share"""

    def add(self, newcomer: Job, others: Iterable[Job]) -> None:
        found = {}
        for other in others:
            length = common(newcomer.tokens, other.tokens)
            if length >= LEAST:
                found[other.lane] = length
        self._shared[newcomer.lane] = found

    def remove(self, lane: int) -> None:
        self._shared.pop(lane, None)

    def awaited(self, job: Job, others: Mapping[int, Job]) -> Job | None:
        """Who among `others`, by lane, is computing a front that `job` needs; None where it can start.

        A job that came earlier never waits for a later one, so nobody waits in a circle.
        """
        best: Job | None = None
        promised = there = 0
        for lane, front in self._shared.get(job.lane, {}).items():
            other = others.get(lane)
            if other is None:
                continue
            length = min(front, other.prompt - 1)
            there = max(there, min(length, other.computed))
            if other.prefilling and length > promised:
                best, promised = other, length
        return best if there < promised else None


def common(left: bytes, right: bytes) -> int:
    """Length in tokens of the common front of two packed token sequences."""
    least = LEAST * _TOKEN
    if left[:least] != right[:least]:
        return 0
    low, high = 0, min(len(left), len(right)) // _TOKEN
    while low < high:
        middle = (low + high + 1) // 2
        if left[low * _TOKEN : middle * _TOKEN] == right[low * _TOKEN : middle * _TOKEN]:
            low = middle
        else:
            high = middle - 1
    return low
