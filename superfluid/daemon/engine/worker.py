"""The engine worker as the daemon sees it: a process to start, frames to send, frames that come back.

The daemon owns its life. It is started with one end of a socket pair and leaves when the other end closes, so no
crash of the daemon leaves one behind; the daemon notices its death by the end of the stream.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing

import trio

from superfluid.protocol import postcard
from superfluid.protocol.errors import DecodeError
from superfluid.protocol.frames import FrameReader, frame
from superfluid.protocol.ticks import Alive, Load, LoadFailed, Loading, Ready, WorkerReply, WorkerRequest

_LOG = logging.getLogger("superfluid.engine")

_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}

_HUGE_PAGES = "glibc.malloc.hugetlb"

STOP_GRACE = 5.0
"""Seconds that a worker gets to leave after its socket closed."""


class WorkerDied(Exception):
    """The worker is gone. `str()` says how, for an error text and the log."""


class LoadRefused(Exception):
    """The worker lives but cannot serve this model. `str()` is its reason."""


class Worker:
    """One worker process. One task receives, any may send; its death raises WorkerDied in all of them."""

    def __init__(self, process: subprocess.Popen[bytes], stream: trio.SocketStream) -> None:
        self._process = process
        self._stream = stream
        self._reader = FrameReader()
        self._sending = trio.StrictFIFOLock()
        self._fate = ""
        self.heard = 0
        """how many frames have come from it"""

    @classmethod
    def spawn(cls, argv: tuple[str, ...] = ()) -> Worker:
        """Start a worker; `argv` stands in for the engine's own command in tests. Raises WorkerDied where the system
        lets none start.

        From this thread, not trio's helper threads: a parent-death signal follows the thread that forked.
        """
        try:
            return cls(*_started(argv))
        except OSError as fault:
            raise WorkerDied(f"no engine worker can be started: {fault.strerror or fault}") from fault

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def sending(self) -> bool:
        """Whether something waits until the worker takes it."""
        return self._sending.locked()

    async def send(self, request: WorkerRequest) -> None:
        """Send one frame. Raises WorkerDied."""
        data = frame(postcard.encode(WorkerRequest, request))
        try:
            # Taken without a pause where it is free: the worker waits for its next tick.
            if self._sending.locked():
                await self._sending.acquire()
            else:
                self._sending.acquire_nowait()
            try:
                await self._stream.send_all(data)
            finally:
                self._sending.release()
        except (trio.BrokenResourceError, trio.ClosedResourceError) as fault:
            raise WorkerDied(self._obituary()) from fault

    async def replies(self) -> AsyncGenerator[WorkerReply, None]:
        """What the worker says, until it dies: then WorkerDied."""
        while True:
            try:
                for payload in self._reader.frames():
                    self.heard += 1
                    reply: WorkerReply = postcard.decode(WorkerReply, payload)
                    yield reply
                data = await self._stream.receive_some(1 << 16)
            except (trio.BrokenResourceError, trio.ClosedResourceError) as fault:
                raise WorkerDied(self._obituary()) from fault
            except DecodeError as fault:
                self.kill()
                raise WorkerDied(f"the engine worker sent what is no frame: {fault}") from fault
            if not data:
                raise WorkerDied(self._obituary())
            self._reader.feed(data)

    async def load(self, request: Load) -> AsyncGenerator[int | Ready, None]:
        """Load a model: progress in thousandths, `Ready` last. Raises LoadRefused, WorkerDied."""
        await self.send(request)
        async with aclosing(self.replies()) as replies:
            async for reply in replies:
                match reply:
                    case Loading(permille=permille):
                        yield permille
                    case Alive():
                        pass
                    case Ready():
                        yield reply
                        return
                    case LoadFailed(reason=reason):
                        raise LoadRefused(reason)
                    case _:
                        raise LoadRefused(f"the engine worker answered {type(reply).__name__} to a load")

    async def forward_log(self) -> None:
        """Copy the worker's stderr, llama.cpp's words included, into the daemon's log, line by line, to its end."""
        assert self._process.stderr is not None
        # Read as it is: a stream would need a descriptor of its own, and there may be none left.
        pipe, rest = self._process.stderr.fileno(), b""
        os.set_blocking(pipe, False)
        while data := await _read(pipe):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self._log_line(line)
            rest = rest[-4096:]
        if rest:
            self._log_line(rest)

    def _log_line(self, line: bytes) -> None:
        level, _, text = line.decode(errors="replace").strip().partition(": ")
        if level in _LEVELS:
            _LOG.log(_LEVELS[level], "%s", text)
        elif level:
            _LOG.info("%s", f"{level}: {text}" if text else level)

    def kill(self) -> None:
        self._process.kill()

    async def condemn(self, reason: str) -> None:
        """Kill it, and have WorkerDied say why. Whoever talks to it hears of that at once, even where the kernel
        cannot end the process: it may wait for a device for ever."""
        self._fate = reason
        self._process.kill()
        await self._stream.aclose()

    async def stop(self) -> None:
        """Close the socket, wait for the process to leave, kill it where it does not, leave it behind where even that
        does not end it. Shielded from cancellation."""
        with trio.CancelScope(shield=True):
            await self._stream.aclose()
            began = trio.current_time()
            while self._process.poll() is None:
                waited = trio.current_time() - began
                if waited > 2 * STOP_GRACE:
                    _LOG.error("the engine worker, process %s, cannot be killed and is left behind", self.pid)
                    break
                if waited > STOP_GRACE:
                    self._process.kill()
                await trio.sleep(0.01)
            if self._process.stderr is not None:
                self._process.stderr.close()

    def _obituary(self) -> str:
        if self._fate:
            return self._fate
        try:
            code = self._process.wait(timeout=1)  # its socket is closed already, so this does not wait in earnest
        except subprocess.TimeoutExpired:
            self._process.kill()
            return "the engine worker closed its socket and was killed"
        if code < 0:
            return f"the engine worker was killed by {signal.Signals(-code).name}"
        return f"the engine worker left with status {code}"


def _started(argv: tuple[str, ...]) -> tuple[subprocess.Popen[bytes], trio.SocketStream]:
    """The process, and our end of the pair. Raises OSError."""
    ours, theirs = socket.socketpair()
    try:
        process = subprocess.Popen(
            [
                *(argv or (sys.executable, "-m", "superfluid.engine")),
                *("--fd", str(theirs.fileno()), "--parent", str(os.getpid())),
            ],
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,  # a Ctrl-C in the terminal is the daemon's to handle
            env={**os.environ, "GLIBC_TUNABLES": _tunables(os.environ.get("GLIBC_TUNABLES", ""))},
        )
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    ours.setblocking(False)
    return process, trio.SocketStream(trio.socket.from_stdlib_socket(ours))


def _tunables(theirs: str) -> str:
    """Those of the environment, and that big blocks of memory lie in huge pages, unless it says something of them."""
    return theirs if _HUGE_PAGES in theirs else ":".join(filter(None, [theirs, f"{_HUGE_PAGES}=1"]))


async def _read(pipe: int) -> bytes:
    """What comes next out of a pipe that does not block; nothing at its end."""
    await trio.lowlevel.checkpoint()
    while True:
        try:
            return os.read(pipe, 1 << 16)
        except BlockingIOError:
            await trio.lowlevel.wait_readable(pipe)
