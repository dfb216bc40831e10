"""A daemon that follows a script: real HTTP on a real port, the answers written by the test."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "0123456789abcdef" * 4
DEADLINE = 20.0
"""Seconds after which a test that waits has failed."""


@dataclass(frozen=True)
class Status:
    """An answer other than 200."""

    code: int
    body: Any = None
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Raw:
    """Bytes as they are: a body, or a piece of a stream."""

    data: bytes


@dataclass(frozen=True)
class Until:
    """Send nothing more before this body has been posted."""

    body: Any


@dataclass(frozen=True)
class HangUp:
    """Close the connection in the middle of the answer."""


class Frames:
    """A stream: dicts are frames. It ends with `[DONE]` unless the last item is a HangUp or Raw."""

    def __init__(self, *items: Any) -> None:
        self.items = items


@dataclass(frozen=True)
class Seen:
    """A request as it came."""

    method: str
    path: str
    headers: dict[str, list[str]]
    body: Any


class FakeWeb:
    """Answers each request by the first step of the script that expects it; a step is used once.

    Leaving the context fails where a request was not in the script or a step was never asked for.
    """

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.abandoned = threading.Event()
        """set when a stream could not be sent to its end"""
        self._script: list[tuple[str, Any, Any]] = []
        self._faults: list[str] = []
        self._arrived = threading.Condition()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = False
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def bodies(self) -> list[Any]:
        return [seen.body for seen in self.seen]

    def rpc(self, request: Any, answer: Any) -> None:
        """Expect `request` on /web/rpc."""
        self._script.append(("/web/rpc", request, answer))

    def stream(self, request: Any, *items: Any) -> None:
        """Expect `request` on /web/stream; a lone Status is the whole answer."""
        whole = len(items) == 1 and isinstance(items[0], Status)
        self._script.append(("/web/stream", request, items[0] if whole else Frames(*items)))

    def health(self, answer: Any) -> None:
        """Expect a look at /web/health."""
        self._script.append(("/web/health", None, answer))

    def __enter__(self) -> FakeWeb:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        if kind is None:
            assert not self._faults, self._faults
            assert not self._script, f"never asked for: {self._script}"

    def answer_to(self, seen: Seen) -> Any:
        with self._arrived:
            self.seen.append(seen)
            self._arrived.notify_all()
            for step in self._script:
                if step[:2] == (seen.path, seen.body):
                    self._script.remove(step)
                    return step[2]
        self._faults.append(f"not in the script: {seen.path} {seen.body}")
        return Status(500)

    def wait_for(self, body: Any) -> None:
        with self._arrived:
            assert self._arrived.wait_for(lambda: body in self.bodies, DEADLINE), f"never came: {body}"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        web = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._answer(None)

            def do_POST(self) -> None:
                length = int(self.headers["content-length"])
                self._answer(json.loads(self.rfile.read(length)))

            def log_message(self, *_: object) -> None: ...

            def _answer(self, body: Any) -> None:
                headers = {name.lower(): self.headers.get_all(name) or [] for name in self.headers}
                answer = web.answer_to(Seen(self.command, self.path, headers, body))
                self.close_connection = True
                if isinstance(answer, Frames):
                    try:
                        self._stream(answer)
                    except ConnectionError:
                        web.abandoned.set()
                elif isinstance(answer, Status):
                    self._whole(answer.code, json.dumps(answer.body).encode(), answer.headers)
                elif isinstance(answer, Raw):
                    self._whole(200, answer.data)
                elif not isinstance(answer, HangUp):
                    self._whole(200, json.dumps(answer).encode())

            def _whole(self, code: int, data: bytes, headers: tuple[tuple[str, str], ...] = ()) -> None:
                self.send_response(code)
                for name, value in (("content-length", str(len(data))), *headers):
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

            def _stream(self, frames: Frames) -> None:
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.send_header("transfer-encoding", "chunked")
                self.end_headers()
                for item in frames.items:
                    if isinstance(item, Until):
                        web.wait_for(item.body)
                    elif isinstance(item, HangUp):
                        return
                    elif isinstance(item, Raw):
                        self._chunk(item.data)
                    else:
                        self._chunk(f"data: {json.dumps(item)}\n\n".encode())
                if not isinstance(frames.items[-1], Raw):
                    self._chunk(b"data: [DONE]\n\n")
                self._chunk(b"")

            def _chunk(self, data: bytes) -> None:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

        return Handler
