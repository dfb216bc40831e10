"""How the worker's process starts, fails and leaves."""

import fcntl
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from superfluid.engine.channel import Channel
from superfluid.protocol import postcard
from superfluid.protocol.frames import MAX_FRAME, frame
from superfluid.protocol.ticks import (
    Drawn,
    Hold,
    Interrupt,
    LoadFailed,
    Park,
    Parked,
    Ready,
    Tick,
    WorkerReply,
    WorkerRequest,
    unpack,
)
from tests.engine.process import PATIENCE, Worker, load, worker


@pytest.fixture
def fresh(request):
    running = Worker(fake=getattr(request, "param", ""))
    yield running
    running.kill()


def test_it_leaves_when_the_daemon_does(fresh):
    assert isinstance(fresh.load(), Ready)
    assert fresh.leave() == (0, "")


def test_it_leaves_before_a_load(fresh):
    assert fresh.leave() == (0, "")


def test_it_leaves_in_the_middle_of_a_tick():
    fresh = Worker(fake="delay_us=1000")
    fresh.load()
    start = fresh.start(1, [20, 21], 400)
    fresh.send(Tick(1, 400, 64, 60_000, (start,), (start.lane,), ()))
    assert isinstance(fresh.receive(), Drawn)
    assert fresh.leave()[0] == 0


@pytest.mark.parametrize(
    "garbage",
    [frame(b"\xff\xff\xff"), frame(b""), (MAX_FRAME + 1).to_bytes(4, "little"), frame(b"\x02\x05")],
    ids=["no request", "empty", "too long", "not a load first"],
)
def test_garbage_ends_it_with_an_error(fresh, garbage):
    fresh.sock.sendall(garbage)
    status, errors = fresh.wait()
    assert status == 3
    assert errors.startswith("error: the daemon sent garbage: ")
    assert "Traceback" not in errors


def test_a_second_load_is_garbage(fresh):
    fresh.load()
    fresh.send(load())
    assert fresh.wait()[0] == 3


def test_orders_about_disk_are_answered_though_nothing_goes_there(fresh):
    fresh.load()
    fresh.send(Hold((1, 2)), Park(100))
    assert fresh.receive() == Parked(0, 0, ())


@pytest.mark.parametrize("fresh", ["delay_us=20000"], indirect=True)
def test_a_long_round_gives_signs_of_life(fresh):
    fresh.load()
    start = fresh.start(1, list(range(20, 80)), 1)
    fresh.tick([start.lane], [start])
    assert fresh.signs, "a round of 1.2 s without a sign"


def test_an_interrupt_of_nothing_is_ignored(fresh):
    fresh.load()
    fresh.interrupt(17)
    assert fresh.generate(1, [20, 21], 3).tokens


@pytest.mark.parametrize("fresh", ["delay_us=50000"], indirect=True)
def test_a_newcomer_ends_a_long_round_in_the_middle_and_its_work_comes_again(fresh):
    fresh.load(context=4096)
    long, short = fresh.start(1, list(range(20, 1020)), 1), fresh.start(2, [20, 21], 1)
    fresh.send(Tick(1, 8, 1000, 250, (long,), (long.lane,), ()), Interrupt(1, at_once=True))
    outcome, _ = fresh.outcome_of(1)
    assert (outcome.lanes[0].prefilled, outcome.lanes[0].remaining) == (0, 1000)
    fresh.send(Tick(2, 1, 4, 250, (short,), (short.lane, long.lane), ()), Interrupt(2, at_once=True))
    outcome, _ = fresh.outcome_of(2)
    assert [(lane.prefilled, lane.remaining) for lane in outcome.lanes] == [(2, 0), (2, 998)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_ends_all_processes_of_a_terminal_or_a_service_is_the_daemon_s_to_handle(fresh, number):
    fresh.load()
    fresh.process.send_signal(number)
    assert len(fresh.generate(1, [20, 21], 3).tokens) == 3


def test_its_descriptor_may_have_any_number():
    """It is the daemon's number, and a daemon may have thousands of connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    try:
        ours, theirs = socket.socketpair()
        with ours, theirs, socket.socket(fileno=fcntl.fcntl(theirs, fcntl.F_DUPFD_CLOEXEC, 1500)) as high:
            channel = Channel(high)
            assert not channel.wait(0.001)
            ours.sendall(frame(postcard.encode(WorkerRequest, Park(7))))
            assert channel.next() == Park(7)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("fresh", ["load_error=1"], indirect=True)
def test_a_load_that_fails_says_so_and_waits_for_the_end(fresh):
    assert fresh.load() == LoadFailed("told to fail")
    assert fresh.leave() == (0, "")


def test_a_reader_that_sleeps_stops_no_round(fresh):
    """More than a socket holds, and nobody takes it: the tick's end is in the queue all the same."""
    fresh.load(lanes=32, context=4096)
    starts = [fresh.start(lane, [20 + lane], 4000) for lane in range(32)]
    fresh.send(Tick(1, 100_000, 64, 600_000, tuple(starts), tuple(start.lane for start in starts), ()))
    fresh.send(Tick(2, 1, 64, 1000, (), (), ()))
    outcome, drawn = fresh.outcome_of(1)
    assert outcome.rounds == 4000
    assert sum(len(unpack(lane.drawn)) for lane in outcome.lanes) == 32 * 4000
    assert sum(len(postcard.encode(WorkerReply, announced)) for announced in drawn) > 1 << 18
    assert fresh.outcome_of(2)[0].lanes == ()


PARENT = """
import sys
from tests.engine.process import Worker
worker = Worker(fake="")
worker.load()
print(worker.process.pid, flush=True)
sys.stdin.read()
"""


def test_it_dies_with_a_killed_parent():
    with subprocess.Popen([sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        number = int(parent.stdout.readline())
        assert alive(number)
        parent.kill()
        parent.wait()
        deadline = time.monotonic() + PATIENCE
        while alive(number):
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_it_does_not_start_for_a_parent_that_is_gone():
    running = Worker(fake="", parent=1 << 30)
    assert running.wait()[0] == 1
    running.kill()


def alive(number):
    """Whether a process runs; one that waits to be collected does not."""
    try:
        os.kill(number, 0)
        with open(f"/proc/{number}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


class TestLlamaLoads:
    @pytest.mark.parametrize("content", [None, b"", b"GGUF", b"no model at all" * 100])
    def test_a_bad_file_is_refused_with_a_reason(self, tmp_path, content):
        path = tmp_path / "bad.gguf"
        if content is not None:
            path.write_bytes(content)
        fresh = Worker()
        failed = fresh.load(model=str(path))
        assert isinstance(failed, LoadFailed)
        assert failed.reason.startswith(f"{path}: ")
        assert failed.reason != f"{path}: llama.cpp gave no reason"
        assert fresh.leave()[0] == 0

    def test_too_large_a_context_names_the_size(self):
        fresh = Worker()
        failed = fresh.load(context=1 << 30, lanes=3, spare=0)
        assert isinstance(failed, LoadFailed)
        assert "not enough memory" in failed.reason
        # 30 layers of 3 heads of 64, keys and values, two bytes each
        assert f"{3 * 30 * 3 * 64 * 2 * 2:,}.0 GiB" in failed.reason
        assert fresh.leave()[0] == 0

    @pytest.mark.parametrize("asked", [True, False])
    def test_weights_are_copied_into_huge_pages_and_into_no_others(self, asked):
        fresh = Worker(tunables=f"glibc.malloc.hugetlb={int(asked)}")
        fresh.load()
        mode = Path("/sys/kernel/mm/transparent_hugepage/enabled")
        granted = mode.exists() and "[never]" not in mode.read_text()
        mapped = ".gguf" in Path(f"/proc/{fresh.process.pid}/maps").read_text()
        assert mapped == (not (asked and granted))
        assert fresh.leave()[0] == 0

    def test_the_library_s_log_goes_to_stderr_and_no_tokens_do(self):
        fresh = Worker()
        ready = fresh.load()
        fresh.generate(1, [400, 500, 600], 5)
        _, errors = fresh.leave()
        levels = {line.partition(": ")[0] for line in errors.splitlines()}
        assert levels <= {"info", "warning", "error"}
        assert ready.kv_bytes == ready.context * ready.sequences * 30 * 3 * 64 * 2 * 2


def test_the_governor_is_on_by_default():
    with worker(fake="", threads=0) as running:
        assert running.ready.threads >= 1
        start = running.start(1, [20], 3)
        assert running.tick([start.lane], [start])[0].threads >= 1
