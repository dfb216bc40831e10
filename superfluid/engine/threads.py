"""How many compute threads to use while other processes come and go.

Compute threads wait for each other at every matrix product. When one of them shares its core with a busy neighbour,
all of them wait for it: on 2 cores, 105 tokens a second become 8 to 31, where one thread alone would give 75. So
the count follows the cores that others leave: the others' load, averaged over some tenths of a second (a client
process that lives for 0.3 s does not count), decides; a round that took far longer than usual only makes us look
sooner. After a step down the way back is short, and longer each time it proves premature.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Protocol

from superfluid.engine.neighbours import Reading

WINDOW = 0.2
"""Seconds between looks; the system counts in hundredths."""
_SHORTEST = 0.05
"""Seconds before a slow round may bring a look forward."""
_FADE = 0.4
"""Seconds after which a reading counts 1/e of a new one."""
_BUSY = 0.5
"""A core counts as taken from this load on: beside two spinning threads on two cores a busy loop gets two thirds."""
_CALM = 0.35
"""A core counts as given back below this."""
_FORGIVEN = 0.3
"""Cores that the daemon may use unnoticed: it hands our tokens on, in short bursts."""
_PATIENCE = (1.0, 4.0)
"""Seconds of calm before a step up: at first, and at most, after steps up that proved premature."""
_PREMATURE = 2.0
"""A step down within this many seconds of a step up says that it was premature."""
_SLOW = 3.0
"""How many times the usual a round takes when threads wait for a neighbour."""
_MIN_EXCESS = 0.03
_BLIND_RUN = 6
"""Slow rounds in a row that mean a neighbour, where the system gives no times."""


class Governor(Protocol):
    @property
    def threads(self) -> int:
        """The count for the next round."""

    def after_round(self, rows: int, seconds: float, now: float) -> None:
        """A round over `rows` tokens took `seconds` and ended at `now`, of a clock that never steps."""


class Fixed:
    """As many threads as the operator said."""

    def __init__(self, threads: int) -> None:
        self._threads = threads

    @property
    def threads(self) -> int:
        return self._threads

    def after_round(self, rows: int, seconds: float, now: float) -> None:
        pass


class Pace:
    """What rounds usually take, per thread count and size class; says which one was unusually slow."""

    def __init__(self) -> None:
        self._usual: dict[tuple[int, int], float] = {}

    def slow(self, threads: int, rows: int, seconds: float) -> bool:
        key = threads, rows.bit_length()
        usual = self._usual.get(key)
        if usual is None:
            self._usual[key] = seconds
            return False
        # Falls fast and rises slowly: what is learned is the undisturbed time, which grows with the context.
        self._usual[key] = usual + (seconds - usual) * (0.3 if seconds < usual else 0.01)
        return seconds > usual * _SLOW and seconds - usual > _MIN_EXCESS


class Adaptive:
    """Follows the neighbours' load, between 1 and `limit` threads on `cores` cores.

    `read` gives the times, None where the system has none: then runs of slow rounds stand for a busy neighbour, and
    the way back is tried at growing intervals.
    """

    def __init__(self, limit: int, cores: int, read: Callable[[], Reading | None], now: float | None = None) -> None:
        self._limit = limit
        self._cores = cores
        self._read = read
        self._threads = limit
        self._pace = Pace()
        self._looked = time.perf_counter() if now is None else now
        self._reading = read()
        self._load = 0.0
        self._calm_since: float | None = None
        self._stepped_up = -math.inf
        self._patience = _PATIENCE[0]
        self._slow_run = 0

    @property
    def threads(self) -> int:
        return self._threads

    @property
    def load(self) -> float:
        """What other processes use, in cores, averaged."""
        return self._load

    def after_round(self, rows: int, seconds: float, now: float) -> None:
        slow = self._pace.slow(self._threads, rows, seconds)
        self._slow_run = self._slow_run + 1 if slow else 0
        passed = now - self._looked
        if passed < (_SHORTEST if slow else WINDOW) or self._limit == 1:
            return
        reading = self._read()
        self._looked = now
        if reading is None or self._reading is None:
            self._reading = reading
            self._guess(now)
            return
        before, self._reading = self._reading, reading
        forgiven = min(reading.daemon - before.daemon, _FORGIVEN * passed)
        others = (reading.busy - before.busy) - (reading.ours - before.ours) - max(0.0, forgiven)
        load = min(max(others / passed, 0.0), float(self._cores))
        self._load += (load - self._load) * (1 - math.exp(-passed / _FADE))
        self._decide(now)

    def _decide(self, now: float) -> None:
        fitting = self._fitting(self._load, _BUSY)
        if fitting < self._threads:
            self._step_down(fitting, now)
            return
        roomy = self._fitting(self._load, _CALM)
        if roomy <= self._threads:
            self._calm_since = None
            return
        if self._calm_since is None:
            self._calm_since = now
        elif now - self._calm_since >= self._patience:
            self._step_up(roomy, now)

    def _fitting(self, load: float, threshold: float) -> int:
        """The threads that find a core each, where a load of `threshold` or more takes the next whole core."""
        taken = math.floor(load + 1 - threshold)
        return max(1, min(self._limit, self._cores - taken))

    def _guess(self, now: float) -> None:
        """Without the system's times: down after a run of slow rounds, up again on trial."""
        if self._slow_run >= _BLIND_RUN and self._threads > 1:
            self._slow_run = 0
            self._step_down(max(1, self._threads // 2), now)
            self._calm_since = now
        elif self._threads < self._limit:
            if self._calm_since is None:
                self._calm_since = now
            elif now - self._calm_since >= self._patience:
                self._step_up(self._limit, now)

    def _step_down(self, threads: int, now: float) -> None:
        if now - self._stepped_up < _PREMATURE:
            self._patience = min(self._patience * 2, _PATIENCE[1])
        else:
            self._patience = _PATIENCE[0]
        self._threads = threads
        self._calm_since = None

    def _step_up(self, threads: int, now: float) -> None:
        self._threads = threads
        self._stepped_up = now
        self._calm_since = None
