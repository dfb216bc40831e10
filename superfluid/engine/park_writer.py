"""The thread that writes artifacts, when nothing else wants the processor.

One thread of the lowest priority takes one state after another, compresses it piece by piece, and looks between
pieces whether it may go on: while lanes run it waits. A file appears whole, by renaming, or not at all; and not at
all from the moment on that its session is cancelled, which takes the same lock as the renaming.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from superfluid.engine.artifact import Header, write
from superfluid.engine.backend import State
from superfluid.engine.logs import say
from superfluid.engine.parks import sync

WAITING = 16
WAITING_BYTES = 256 << 20
"""How many states may wait for the thread, and how large all but the last of them may be together."""


@dataclass(slots=True, eq=False)
class Job:
    """A state to write, and where to; `size` is the file's in bytes once it is there."""

    header: Header
    state: State
    path: Path
    temporary: Path
    cancelled: bool = False
    size: int | None = None


class Stopped(Exception):
    """The write was given up: cancelled, or out of time."""


class ParkWriter:
    """Writes artifacts in the background. All methods are for the worker's own thread, and none waits for a write
    but `rest`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._jobs: deque[Job] = deque()
        self._current: Job | None = None
        self._done: deque[Job] = deque()
        self._may_run = False
        self._closing = False
        self._complained = False
        self._thread = threading.Thread(target=self._run, name="parks", daemon=True)
        self._thread.start()

    @property
    def busy(self) -> bool:
        with self._lock:
            return bool(self._jobs or self._current)

    @property
    def takes(self) -> bool:
        """Whether `offer` would be taken."""
        with self._lock:
            return self._has_room()

    def offer(self, job: Job) -> bool:
        """Have it written sometime. False where too many wait already."""
        with self._changed:
            if not self._has_room():
                return False
            self._jobs.append(job)
            self._changed.notify_all()
        return True

    def _has_room(self) -> bool:
        return len(self._jobs) < WAITING and sum(len(job.state) for job in self._jobs) < WAITING_BYTES

    def pause(self) -> None:
        """Lanes run: write no further than the piece in progress."""
        self._may_run = False

    def resume(self) -> None:
        with self._changed:
            self._may_run = True
            self._changed.notify_all()

    def collect(self) -> list[Job]:
        """The jobs that ended since the last call; `size` is None where there is no file."""
        with self._lock:
            done = [job for job in self._done if not job.cancelled]
            self._done.clear()
        return done

    def cancel(self, sessions: Collection[int]) -> None:
        """On return, no file of a job of these sessions is there or will be, but for those collected before."""
        with self._changed:
            for job in (*self._jobs, *self._done, *([self._current] if self._current else [])):
                if job.header.session in sessions:
                    job.cancelled = True
                    # Its writer may go on writing to a file that has no name any more.
                    _unlink(job.temporary)
            self._jobs = deque(job for job in self._jobs if not job.cancelled)
            self._changed.notify_all()

    def holds(self, session: int) -> bool:
        """Whether a job of this session waits or is being written."""
        with self._lock:
            jobs = (*self._jobs, self._current)
            return any(job is not None and job.header.session == session for job in jobs)

    def rest(self, seconds: float) -> bool:
        """Wait until nothing waits or is being written, but no longer: whether that came."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._jobs and self._current is None, seconds)

    def close(self) -> None:
        """Give up what is being written and end the thread."""
        with self._changed:
            self._closing = True
            self._jobs.clear()
            self._changed.notify_all()
        self._thread.join()

    def write(self, job: Job, between: Callable[[], None]) -> bool:
        """Write it now, in the calling thread: whether the file is there. `between` may raise Stopped."""
        with self._lock:
            self._current = job
        self._try(job, between)
        with self._lock:
            self._current = None
        return job.size is not None

    def _try(self, job: Job, between: Callable[[], None]) -> None:
        try:
            self._write(job, between)
            self._complained = False
        except Stopped:
            pass
        except (OSError, MemoryError) as fault:
            if not self._complained:
                say("warning", f"KV cannot be parked: {fault}")
            self._complained = True

    # --- the thread -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        if sys.platform == "linux":
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
        while (job := self._take()) is not None:
            self._try(job, self._go_on)
            with self._changed:
                # At once: `cancel` must find it in the one place or the other.
                self._current = None
                self._done.append(job)
                self._changed.notify_all()

    def _take(self) -> Job | None:
        with self._changed:
            self._changed.wait_for(lambda: self._closing or (self._may_run and self._jobs))
            if self._closing:
                return None
            self._current = self._jobs.popleft()
            return self._current

    def _go_on(self) -> None:
        """Wait until the thread may run. Raises Stopped where its job is not wanted any more."""
        with self._changed:
            self._changed.wait_for(self._wakes)
            if self._closing or self._current is None or self._current.cancelled:
                raise Stopped

    def _wakes(self) -> bool:
        return self._may_run or self._closing or (self._current is not None and self._current.cancelled)

    def _write(self, job: Job, between: Callable[[], None]) -> None:
        with self._lock:
            if job.cancelled:
                raise Stopped
            _unlink(job.temporary)
            opened = os.open(job.temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(opened, "wb") as file:
                os.fchmod(opened, 0o600)  # whatever the umask
                size = write(file, job.header, job.state, between)
            with self._lock:
                if job.cancelled:
                    raise Stopped
                job.temporary.rename(job.path)
                job.size = size
            sync(job.path.parent)
        finally:
            _unlink(job.temporary)


def _unlink(path: Path) -> None:
    try:
        path.unlink()
    except OSError:
        pass
