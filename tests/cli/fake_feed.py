"""A daemon that takes pushes: the real protocol over a real unix socket, durable where the test says so."""

from __future__ import annotations

import random
import socket
import threading
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from superfluid.protocol import postcard, requests, responses
from superfluid.protocol.feed_responses import FeedReport
from superfluid.protocol.frames import FrameReader, frame
from tests.cli.fake_server import DEADLINE
from tests.cli.mortal import Mortal

SESSION = 7
NAME = "feed"


@dataclass
class Disk:
    """What survives a daemon: the ingested entries, and how many were dropped."""

    entries: list[str] = field(default_factory=list)
    dropped: int = 0
    purged: bool = False
    exists: bool = True

    @property
    def taken(self) -> int:
        return len(self.entries) + self.dropped


class FakeFeed(Mortal):
    """One daemon's life at `path`. Each look at the session's state ingests `appetite` entries, then answers.

    It dies after `pushes` of them, before the acknowledgement of the last one where `rudely`. `hang_ups` says of
    which pushes (from 0) the connection breaks instead of an acknowledgement, while the daemon lives on.
    """

    def __init__(
        self,
        path: Path,
        disk: Disk,
        *,
        appetite: int = 1 << 30,
        pushes: int | None = None,
        rudely: bool = False,
        hang_ups: tuple[int, ...] = (),
    ) -> None:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        listener.listen(4)
        super().__init__(listener)
        self.path = path
        self.disk = disk
        self.appetite = appetite
        self.queue: deque[str] = deque()
        self.seen: list[Any] = []
        self.arrived = threading.Condition()
        self._pushes = pushes
        self._rudely = rudely
        self._hang_ups = hang_ups
        self._pushed = 0
        self._latest: tuple[int, int] | None = None
        self._count = 0
        self._run = random.getrandbits(60)
        self._base = self._total = disk.taken
        self.live()

    def _vanish(self) -> None:
        """The queue is gone with it, the disk is not."""
        self.path.unlink(missing_ok=True)

    def wait_for(self, kind: type, count: int = 1) -> None:
        with self.arrived:
            assert self.arrived.wait_for(
                lambda: sum(isinstance(request, kind) for request in self.seen) >= count, DEADLINE
            ), kind

    def _serve(self, connection: socket.socket) -> None:
        reader = FrameReader()
        try:
            while piece := connection.recv(1 << 16):
                reader.feed(piece)
                for payload in reader.frames():
                    request = postcard.decode(requests.Request, payload)
                    reply = self._reply(request)
                    if reply is None:
                        connection.shutdown(socket.SHUT_RDWR)
                    else:
                        connection.sendall(frame(postcard.encode(responses.Response, reply)))
                    with self.arrived:
                        self.seen.append(request)
                        self.arrived.notify_all()
                    if self._pushed == self._pushes:
                        self.die()
        except OSError:
            return

    def _reply(self, request: Any) -> responses.Response | None:
        match request:
            case requests.Resolve(name) if name == NAME and self.disk.exists:
                return responses.Resolved(SESSION)
            case requests.Resolve(name):
                return responses.Err(f"no session is named {name!r}")
            case requests.Open(name=name):
                assert name == NAME
                self.disk.exists = True
                return responses.Opened(SESSION, NAME)
            case _ if self.disk.purged:
                return responses.Err(f"session {SESSION} was purged")
            case requests.FeedState(session):
                assert session == SESSION
                self._ingest()
                return responses.Feed(self._report())
            case requests.PushNumbered(session=session):
                assert session == SESSION
                return self._push(request)
            case _:
                return responses.Err("not what this daemon knows")

    def _push(self, request: requests.PushNumbered) -> responses.Response | None:
        self._pushed += 1
        if self._latest != (request.sender, request.first):
            self._latest, self._count = (request.sender, request.first), len(request.data)
            self.queue.extend(request.data)
            self._total += len(request.data)
        if self._pushed - 1 in self._hang_ups or (self._rudely and self._pushed == self._pushes):
            return None
        return responses.Pushed(
            self._count, 0, len(self.queue), 0, self._total, self.disk.dropped, 0, self.disk.taken
        )

    def _ingest(self) -> None:
        for _ in range(min(self.appetite, len(self.queue))):
            self.disk.entries.append(self.queue.popleft())

    def _report(self) -> FeedReport:
        return report(
            taken=self.disk.taken,
            total_pushed=self._total,
            total_dropped=self.disk.dropped,
            pending=len(self.queue),
            run=self._run,
            base=self._base,
        )


def report(**changes: Any) -> FeedReport:
    values: dict[str, Any] = {
        "session": SESSION,
        "name": NAME,
        "created": 1_700_000_000,
        "last_used": 1_700_000_001,
        "tokens": 90,
        "kv_tokens": 80,
        "busy": False,
        "turns": 2,
        "data_end": 90,
        "data_version": 3,
        "pending": 1,
        "pre_decode": True,
        "ready": True,
        "evicted": 4,
        "window": 512,
        "frozen_end": 20,
        "ready_token": 11,
        "ready_gap": 0.5,
        "taken": 6,
        "total_pushed": 7,
        "total_dropped": 0,
        "pending_bytes": 12,
        "run": 1,
        "base": 0,
    }
    return FeedReport(**(values | changes))
