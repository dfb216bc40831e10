"""A daemon that follows a script: the real protocol over a real unix socket, the answers written by the test."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from superfluid.protocol import postcard, records, requests, responses
from superfluid.protocol.frames import FrameReader, frame

DEADLINE = 20.0
"""Seconds after which a test that waits has failed."""


@dataclass(frozen=True)
class Until:
    """Say nothing more before a request of this type has been seen, on any connection."""

    kind: type


@dataclass(frozen=True)
class Raw:
    """Bytes as they are, framed by nobody."""

    data: bytes


@dataclass(frozen=True)
class HangUp:
    """Close the connection."""


@dataclass(frozen=True)
class Endless:
    """This reply over and over, until the client hangs up."""

    reply: responses.Response


Action = responses.Response | Until | Raw | HangUp | Endless
Expected = requests.Request | Callable[[Any], bool]


@dataclass
class _Step:
    expected: Expected
    actions: tuple[Action, ...]
    for_ever: bool = False

    def fits(self, request: Any) -> bool:
        return self.expected(request) if callable(self.expected) else self.expected == request


class FakeServer:
    """Answers each request by the first step of the script that expects it; used once, then gone, or for ever.

    Leaving the context fails where a request was not in the script or a step was never asked for.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.seen: list[Any] = []
        self.hung_up = threading.Event()
        """set when an Endless reply met a client that had left"""
        self._steps: list[_Step] = []
        self._faults: list[str] = []
        self._arrived = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._open: list[socket.socket] = []
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen(8)
        self._start(self._accept)

    def __enter__(self) -> FakeServer:
        return self

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        self.close()
        if kind is None:
            left = [step.expected for step in self._steps if not step.for_ever]
            assert not self._faults, self._faults
            assert not left, f"never asked: {left}; seen: {self.seen}"

    def expect(self, expected: Expected, *actions: Action) -> None:
        """Answer `expected`, a request or a predicate on one, with `actions`."""
        with self._arrived:
            self._steps.append(_Step(expected, actions))

    def always(self, expected: Expected, *actions: Action) -> None:
        """As `expect`, any number of times, none included."""
        with self._arrived:
            self._steps.append(_Step(expected, actions, for_ever=True))

    def wait_for(self, kind: type) -> Any:
        """The first request of this type, once there is one."""
        with self._arrived:
            assert self._arrived.wait_for(lambda: any(isinstance(it, kind) for it in self.seen), DEADLINE), kind
            return next(it for it in self.seen if isinstance(it, kind))

    def close(self) -> None:
        for closing in (self._listener, *self._open):
            try:
                closing.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        for thread in self._threads:
            thread.join(DEADLINE)
        for closing in (self._listener, *self._open):
            closing.close()
        self.path.unlink(missing_ok=True)

    def _start(self, target: Callable[..., None], *args: Any) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(connection)
            self._start(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        reader = FrameReader()
        try:
            while piece := connection.recv(1 << 16):
                reader.feed(piece)
                for payload in reader.frames():
                    if not self._answer(connection, postcard.decode(requests.Request, payload)):
                        return
        except OSError:
            return

    def _answer(self, connection: socket.socket, request: Any) -> bool:
        with self._arrived:
            self.seen.append(request)
            self._arrived.notify_all()
            step = next((step for step in self._steps if step.fits(request)), None)
            if step is None:
                self._faults.append(f"not in the script: {request}")
                connection.sendall(_framed(responses.Err("not in the script")))
                return True
            if not step.for_ever:
                self._steps.remove(step)
        return all(self._act(connection, action) for action in step.actions)

    def _act(self, connection: socket.socket, action: Action) -> bool:
        """Do it; False where the connection is over."""
        match action:
            case Until(kind):
                with self._arrived:
                    if not self._arrived.wait_for(lambda: any(isinstance(it, kind) for it in self.seen), DEADLINE):
                        self._faults.append(f"no {kind.__name__} came")
                        return False
            case Raw(data):
                connection.sendall(data)
            case HangUp():
                connection.shutdown(socket.SHUT_RDWR)
                return False
            case Endless(reply):
                try:
                    while True:
                        connection.sendall(_framed(reply))
                except OSError:
                    self.hung_up.set()
                    return False
            case reply:
                connection.sendall(_framed(reply))
        return True


def _framed(reply: Any) -> bytes:
    return frame(postcard.encode(responses.Response, reply))


def event(number: int, body: Any) -> records.Event:
    return records.Event(number, 1, 1_700_000_000_000 + number, body)


def text(number: int, words: str, finish: int = 0, channel: int = 0) -> responses.Delta:
    """A piece of a reply."""
    return responses.Delta(event(number, records.Generated((7,), words, channel, finish)))


def done(tokens: int = 3, finish: int = 1, warm: int = 5) -> responses.Generated:
    return responses.Generated((), tokens, finish, warm)


def committed(number: int, role: int = 1, words: str = "hi") -> responses.Committed:
    return responses.Committed(event(number, records.Message(role, words, (1, 2))))


def summary(id_: int, **changes: Any) -> responses.SessionSummary:
    """A list entry; `changes` are its fields."""
    values: dict[str, Any] = {
        "id": id_,
        "parent": None,
        "fork_at": 0,
        "title": None,
        "archived": False,
        "meta_version": 0,
        "generation": 0,
        "events": 4,
        "tokens": 20,
        "open_tool_calls": 0,
    }
    return responses.SessionSummary(**(values | changes))


PARAMS = records.GenParams(0.5, 0.25, 0.0, 3, 42)


def created(id_: int) -> responses.Created:
    return responses.Created(id_)


def sessions(*entries: responses.SessionSummary) -> responses.SessionList:
    return responses.SessionList(entries)


def inspection(**changes: Any) -> responses.SessionInspection:
    values: dict[str, Any] = {
        "summary": summary(4, parent=2, fork_at=3, title="t\x1b"),
        "params": PARAMS,
        "epoch": 2,
        "last_finish": 1,
        "qos_class": 2,
        "batch_invariant": False,
        "pin_deadline_unix_ms": 0,
        "behavior_fingerprint": 255,
        "open_tool_calls": ((6, "f", "{}"),),
        "tier": responses.Parked(20, 0),
        "tokens": (1, 2),
        "events": (event(0, records.Created(None, PARAMS)), event(1, records.Message(1, "a\nb", (1, 2)))),
        "wal_version": 2,
        "store_id": responses.StoreId(bytes(16)),
    }
    return responses.SessionInspection(**(values | changes))


def report(**changes: Any) -> responses.StatusReport:
    values: dict[str, Any] = {
        "version": "0.1.0",
        "pid": 7,
        "uptime": 3725,
        "model": "tiny\x1b",
        "model_path": "/m/tiny.gguf",
        "devices": ("GPU 0",),
        "gpu_layers": (1 << 31) - 1,
        "threads": 2,
        "context": 4096,
        "lanes": 8,
        "running": (responses.LaneStatus(3, 2, 120, 100, 0, 17), responses.LaneStatus(12, 0, 9, 0, 9, 0)),
        "queue": (0, 1, 2, 3),
        "kv_sessions": (2, 5, 1),
        "kv_tokens": (220, 9000, 1),
        "prefill_rate": 512.0,
        "decode_rate": 31.25,
        "sessions": 12,
        "respawns": 1,
        "ticks": 99,
    }
    return responses.StatusReport(**(values | changes))
