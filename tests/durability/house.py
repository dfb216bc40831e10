"""What these tests share: daemons on the fake worker, clients that run beside the test, raw connections."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from superfluid.protocol import postcard, records, requests, responses
from superfluid.protocol.frames import FrameReader, frame
from superfluid_cli.client import Client
from tests.support.daemon import DEADLINE, FAKE, Daemon


def fake(**options: int) -> list[str]:
    """The fake worker's command, with options of `FakeModel`."""
    return [*FAKE[:-1], "--fake=" + ",".join(f"{key}={value}" for key, value in options.items())]


def flaky(mood: Path, **options: int) -> list[str]:
    """A fake worker that first looks into the file `mood`: `die` and `hang` do just that, before it loads."""
    return [
        sys.executable,
        "-m",
        "tests.durability.flaky_worker",
        str(mood),
        *fake(**options)[-1:],
    ]


class Beside(threading.Thread):
    """A piece of work in a thread of its own; `result` waits for it and returns or raises what it did."""

    def __init__(self, work: Callable[..., Any], *arguments: Any) -> None:
        super().__init__(daemon=True)
        self._work = work
        self._arguments = arguments
        self._value: Any = None
        self._fault: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._value = self._work(*self._arguments)
        except BaseException as fault:
            self._fault = fault

    def result(self) -> Any:
        self.join(DEADLINE)
        assert not self.is_alive(), "it does not end"
        if self._fault is not None:
            raise self._fault
        return self._value


class Asked:
    """A generation in a thread, on a connection of its own: `events` grow, `end` is its summary or the error."""

    def __init__(self, daemon: Daemon, session: int, max_tokens: int) -> None:
        self.session = session
        self.events: list[records.Event] = []
        self.end: responses.Generated | Exception | None = None
        self._client = daemon.client()
        self._thread = Beside(self._run, max_tokens)

    def _run(self, max_tokens: int) -> None:
        with self._client as client:
            try:
                for reply in client.generate(self.session, max_tokens):
                    if isinstance(reply, responses.Delta):
                        self.events.append(reply.event)
                    else:
                        self.end = reply
            except Exception as fault:
                self.end = fault

    def wait_for(self, events: int) -> None:
        """Until so many deltas are there."""
        until(lambda: len(self.events) >= events or self.end is not None)
        assert len(self.events) >= events, self.end

    def finish(self) -> responses.Generated:
        self._thread.result()
        assert isinstance(self.end, responses.Generated), self.end
        return self.end

    def error(self) -> str:
        self._thread.result()
        assert isinstance(self.end, Exception), self.end
        return str(self.end)


class Following:
    """A subscription in a thread: `messages` grow, until the end of it or of the daemon."""

    def __init__(self, daemon: Daemon, session: int, cursor: int = 0, *, provisional: bool = False) -> None:
        self.messages: list[Any] = []
        self._wire = Wire(daemon)
        try:
            self._wire.send(requests.Subscribe(session, cursor, provisional))
            self._wire.until(responses.Subscribed)
        except BaseException:
            self._wire.socket.close()
            raise
        self._thread = Beside(self._run)

    def _run(self) -> None:
        with self._wire as wire:
            while (message := wire.receive()) is not None:
                self.messages.append(message)
                if isinstance(message, responses.SubEnded):
                    return

    @property
    def events(self) -> list[records.Event]:
        return [message.event for message in list(self.messages) if isinstance(message, responses.SubEvent)]

    @property
    def shown(self) -> str:
        """The provisional text so far."""
        return "".join(m.text for m in list(self.messages) if isinstance(m, responses.SubProvisional))

    def finish(self) -> str:
        """The reason that ended it."""
        self._thread.result()
        assert isinstance(self.messages[-1], responses.SubEnded), self.messages[-1]
        return self.messages[-1].reason

    def cut(self) -> None:
        """Wait for the end of a connection that the daemon took with it."""
        self._thread.result()


class Wire:
    """A connection without manners: bytes go out as they are, responses come in one by one."""

    def __init__(self, daemon: Daemon) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(DEADLINE)
        try:
            self.socket.connect(str(daemon.socket))
        except OSError:
            self.socket.close()
            raise
        self._reader = FrameReader()

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, *asked: requests.Request) -> None:
        """All of `asked` in one write."""
        self.socket.sendall(b"".join(frame(postcard.encode(requests.Request, one)) for one in asked))

    def receive(self) -> responses.Response | None:
        """The next response; None where the daemon has closed."""
        while (payload := self._reader.next_frame()) is None:
            try:
                data = self.socket.recv(1 << 18)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self._reader.feed(data)
        response: responses.Response = postcard.decode(responses.Response, payload)
        return response

    def until(self, kind: type) -> list[Any]:
        """Responses up to the first of `kind`, which is the last of the list."""
        got: list[Any] = []
        while not got or not isinstance(got[-1], kind):
            response = self.receive()
            assert response is not None, f"the daemon closed after {got[-3:]}"
            got.append(response)
        return got


def until(there: Callable[[], object]) -> None:
    """Wait for something that must come."""
    deadline = time.monotonic() + DEADLINE
    while not there():
        assert time.monotonic() < deadline, "it did not come in time"
        time.sleep(0.005)


def err(client: Client, request: requests.Request) -> str:
    """The text with which the daemon refuses."""
    try:
        reply = client.call(request)
    except Exception as fault:
        return str(fault)
    raise AssertionError(f"answered with {reply}")


def kinds(events: Any) -> list[str]:
    return [type(event.body).__name__ for event in events]


def kept_text(events: Any) -> str:
    """The reply text in `events`."""
    return "".join(event.body.text for event in events if isinstance(event.body, records.Generated))


def fork(client: Client, session: int, at_event: int) -> int:
    return client.ask(requests.Fork(session, at_event, None), responses.Created).session


def kill_worker(daemon: Daemon) -> None:
    """SIGKILL to the worker, and its end waited for."""
    (worker,) = daemon.workers()
    worker.kill()
    _, alive = psutil.wait_procs([worker], DEADLINE)
    assert not alive


def log_of(daemon: Daemon) -> str:
    path = daemon.sessions / "logs" / "serve.log"
    return path.read_text(errors="replace") if path.exists() else ""


def files_below(directory: Path) -> list[Path]:
    return [Path(folder) / name for folder, _, names in os.walk(directory) for name in names]
