"""What a busy neighbour leaves of a lane's speed with `--threads auto`, and when the rest of it is back.

Starts a daemon on the embedded model and has one session after another drawn without a pause. In each pair an idle
phase, a phase beside one busy loop, and, SETTLE seconds after the loop's end, a phase of recovery. The busy phase
counts from the loop's start on. Over the pairs the medians count. Needs a machine that is calm otherwise: where
others keep more than QUIET cores busy in the idle phases, as far as the system tells, there is nothing to pass.

    python benchmarks/contention.py [PAIRS]

Prints tokens a second and ratios, then PASS or FAIL; exits 0 or 1.
"""

import math
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from superfluid.protocol import requests, responses
from superfluid.protocol.records import GenParams
from superfluid_cli.client import Client
from superfluid_cli.exits import NoDaemon

PAIRS = 3
IDLE, BUSY, SETTLE, RECOVERY = 6.0, 10.0, 5.0, 6.0
"""Seconds of each phase."""

KEPT = 0.5
"""The part of its idle rate that a lane must keep beside the loop."""
BACK = 0.9
"""The part of its idle rate that counts as having it back; the rest is the machine's own unrest."""

QUIET = 0.2
"""Cores that others may use in the idle phases."""

STRETCH = 200
"""Tokens drawn from one session, so that all phases see contexts of the same lengths."""
START_DEADLINE = 60.0
LOOP = (sys.executable, "-c", "while True: pass")


@contextmanager
def served() -> Iterator[tuple[Path, int]]:
    """A daemon of our own: its socket and process id."""
    with tempfile.TemporaryDirectory(prefix="sf-") as folder:
        socket = Path(folder) / "s"
        command = [sys.executable, "-m", "superfluid_cli", "serve", "--threads", "auto", "--max-context", "1024"]
        command += ["--socket", str(socket), "--sessions", str(Path(folder) / "sessions")]
        output = subprocess.DEVNULL
        env = os.environ | {"SUPERFLUID_NO_HTTP": "1"}
        daemon = subprocess.Popen(command, stdin=output, stdout=output, stderr=output, env=env)
        try:
            wait_for(socket, daemon)
            yield socket, daemon.pid
        finally:
            daemon.send_signal(signal.SIGTERM)
            daemon.wait()


def wait_for(socket: Path, daemon: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + START_DEADLINE
    while True:
        try:
            Client(socket).close()
            return
        except NoDaemon:
            if daemon.poll() is not None or time.monotonic() > deadline:
                raise SystemExit("the daemon did not start") from None
            time.sleep(0.05)


class Lane(threading.Thread):
    """Draws without a pause, and notes when how many tokens came."""

    def __init__(self, socket: Path) -> None:
        super().__init__(daemon=True)
        self._client = Client(socket)
        self.drawn: list[tuple[float, int]] = []
        self.over = False

    def run(self) -> None:
        greedy = GenParams(temperature=0.0, top_p=1.0, min_p=0.0, top_k=0, seed=0)
        while not self.over:
            session = self._client.ask(requests.Create(None, greedy), responses.Created).session
            self._client.call(requests.Append(session, "Let us count: 1, 2, 3, 4, 5, 6,", ()))
            for reply in self._client.generate(session, STRETCH):
                if isinstance(reply, responses.Delta):
                    self.drawn.append((time.monotonic(), len(reply.event.body.span)))

    def rate(self, begin: float, end: float) -> float:
        """Tokens a second between two moments."""
        return sum(count for moment, count in tuple(self.drawn) if begin < moment <= end) / (end - begin)

    def phase(self, seconds: float) -> float:
        begin = time.monotonic()
        time.sleep(seconds)
        if not self.is_alive():
            raise SystemExit("the lane has ended: did the daemon die?")
        return self.rate(begin, begin + seconds)


@contextmanager
def busy_loop() -> Iterator[None]:
    loop = subprocess.Popen(LOOP)
    try:
        yield
    finally:
        loop.kill()
        loop.wait()


def others_seconds(daemon: int) -> float:
    """CPU seconds since some moment that went to neither us nor the daemon and its worker; NaN where none tells."""
    try:
        user, nice, system, _, _, irq, softirq = map(int, Path("/proc/stat").read_text().split()[1:8])
        workers = Path(f"/proc/{daemon}/task/{daemon}/children").read_text().split()
        ours = sum(process_ticks(pid) for pid in ("self", str(daemon), *workers))
    except (OSError, ValueError):
        return math.nan
    return (user + nice + system + irq + softirq - ours) / os.sysconf("SC_CLK_TCK")


def process_ticks(pid: str) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


@dataclass(frozen=True, slots=True)
class Pair:
    """Tokens a second of each phase, and how many cores others used in the idle one."""

    others: float

    idle: float
    busy: float
    settling: float
    recovered: float

    @property
    def kept(self) -> float:
        return self.busy / self.idle

    @property
    def back(self) -> float:
        return self.recovered / self.idle


def measure(lane: Lane, daemon: int) -> Pair:
    before = others_seconds(daemon)
    idle = lane.phase(IDLE)
    others = (others_seconds(daemon) - before) / IDLE
    with busy_loop():
        busy = lane.phase(BUSY)
    return Pair(others, idle, busy, lane.phase(SETTLE), lane.phase(RECOVERY))


def main() -> int:
    if len(sys.argv) > 2 or not all(argument.isdecimal() and int(argument) for argument in sys.argv[1:]):
        print(__doc__, file=sys.stderr)
        return 2
    pairs = []
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    print(f"{cores} cores; load before: {', '.join(f'{load:.2f}' for load in os.getloadavg())}")
    print("tokens a second:  idle   busy  first 5 s after  then     busy/idle  then/idle  others' cores")
    with served() as (socket, daemon):
        lane = Lane(socket)
        lane.start()
        lane.phase(SETTLE)
        for _ in range(int(sys.argv[1]) if len(sys.argv) > 1 else PAIRS):
            pair = measure(lane, daemon)
            pairs.append(pair)
            rates = f"{pair.idle:21.1f} {pair.busy:6.1f} {pair.settling:16.1f} {pair.recovered:5.1f}"
            print(f"{rates} {pair.kept:13.2f} {pair.back:10.2f} {pair.others:14.2f}", flush=True)
        lane.over = True
        lane.join()
    kept = statistics.median(pair.kept for pair in pairs)
    back = statistics.median(pair.back for pair in pairs)
    others = statistics.median(pair.others for pair in pairs)
    if others > QUIET:
        print(f"FAIL: others kept {others:.2f} cores busy in the idle phases (at most {QUIET}): nothing was measured")
        return 1
    passed = kept >= KEPT and back >= BACK
    print(f"{'PASS' if passed else 'FAIL'}: kept {kept:.2f} (at least {KEPT}), back {back:.2f} (at least {BACK})")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
