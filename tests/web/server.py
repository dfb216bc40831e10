"""A daemon's browser transport as tests see it: requests of any shape, event streams and WebSockets."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import trio
import trio_websocket

from tests.support.daemon import DEADLINE, FAKE, Daemon

ORIGIN = "http://localhost:5173"


def fake(**settings: int) -> list[str]:
    """The command of a fake worker; see `superfluid.engine.fake.FakeModel`."""
    return [*FAKE, ",".join(f"{name}={value}" for name, value in settings.items())]


class Web:
    """A running daemon with `--web` and one origin, `ORIGIN` where `origins` are not among the settings."""

    def __init__(self, directory: Path, **settings: object) -> None:
        settings.setdefault("worker_argv", fake())
        web = {"port": 0, "origins": settings.pop("origins", [ORIGIN])}
        self.daemon = Daemon(directory, web=web, **settings)
        self.start()

    def start(self) -> None:
        try:
            self.daemon.start()
        except BaseException:
            self.daemon.close()
            raise
        self.url = self.daemon.web_url()
        self.address = (urlsplit(self.url).hostname, urlsplit(self.url).port)
        self.token = self.token_file.read_text()

    @property
    def token_file(self) -> Path:
        return self.daemon.sessions / "web-token"

    def close(self) -> None:
        self.daemon.close()

    @property
    def auth(self) -> list[str]:
        return [f"Authorization: Bearer {self.token}", f"X-Superfluid-CSRF: {self.token}"]

    # --- HTTP -----------------------------------------------------------------------------------------------------

    @contextmanager
    def connection(self) -> Iterator[socket.socket]:
        with socket.create_connection(self.address, DEADLINE) as stream:
            yield stream

    def request(
        self, method: str, path: str, headers: list[str], body: bytes = b"", *, host: str = "localhost"
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers by lower-case name, body; `headers` are lines, as they are sent."""
        lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", "Connection: close", *headers]
        if not any(line.lower().startswith(("content-length", "transfer-encoding")) for line in headers):
            lines.append(f"Content-Length: {len(body)}")
        with self.connection() as stream:
            stream.sendall("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body)
            return parsed(read_all(stream))

    def post(self, path: str, body: object) -> tuple[int, dict[str, str], bytes]:
        """A request in order: authenticated, JSON."""
        return self.request("POST", path, [*self.auth, "Content-Type: application/json"], json.dumps(body).encode())

    def rpc(self, request: object) -> object:
        status, _, body = self.post("/web/rpc", request)
        assert status == 200, body
        return json.loads(body)

    def session(self, text: str | None = "Hello.", temperature: float = 0.0) -> int:
        """A session that holds one message."""
        params = {"temperature": temperature, "top_p": 1.0, "min_p": 0.0, "top_k": 0, "seed": 1}
        session = self.rpc({"Create": {"parent": None, "params": params}})["Created"]["session"]
        if text is not None:
            assert "Committed" in self.rpc({"AppendMessage": {"session": session, "role": 1, "text": text}})
        return session

    def read(self, session: int) -> list[dict]:
        return self.rpc({"Read": {"session": session, "cursor": 0}})["Events"]["events"]

    def finishes(self, session: int) -> list[int]:
        """The finish of every turn of the session that has one."""
        bodies = [event["body"] for event in self.read(session)]
        found = [body["Generated"]["finish"] for body in bodies if isinstance(body, dict) and "Generated" in body]
        return [finish for finish in found if finish]

    @contextmanager
    def streaming(self, **order: object) -> Iterator[Iterator[object]]:
        """The events of a stream as they come; leaving hangs up."""
        body = json.dumps(order).encode()
        head = [
            "POST /web/stream HTTP/1.1",
            "Host: localhost",
            *self.auth,
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
        ]
        with self.connection() as stream:
            stream.sendall("\r\n".join(head).encode() + b"\r\n\r\n" + body)
            with stream.makefile("rb") as lines:
                yield _events(lines)

    def stream(self, **order: object) -> list:
        """All events of a stream, parsed; the last one is `[DONE]`."""
        status, headers, body = self.post("/web/stream", order)
        assert status == 200
        assert headers["content-type"].startswith("text/event-stream")
        frames = body.decode().split("\n\n")
        assert frames.pop() == ""
        assert all(frame.startswith("data: ") and "\n" not in frame for frame in frames)
        assert frames[-1] == "data: [DONE]"
        return [json.loads(frame.removeprefix("data: ")) for frame in frames[:-1]]

    # --- WebSocket ------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def socket(self, *, protocols: list[str] | None = None, headers: list[tuple[str, str]] | None = None):
        if protocols is None:
            protocols = ["superfluid.v1", f"superfluid.token.{self.token}"]
        async with trio_websocket.open_websocket_url(
            self.url.replace("http", "ws", 1) + "/web/ws",
            subprotocols=protocols,
            extra_headers=[("Origin", ORIGIN)] if headers is None else headers,
            connect_timeout=DEADLINE,
            disconnect_timeout=DEADLINE,
            max_message_size=1 << 28,
        ) as found:
            yield found
        await found._stream.aclose()  # trio-websocket leaves it open where the other end does not say goodbye


def _events(lines) -> Iterator[object]:
    for line in lines:
        if line.startswith(b"data: [DONE]"):
            return
        if line.startswith(b"data: {"):
            yield json.loads(line.removeprefix(b"data: "))


def run(talk: Callable, *arguments: object) -> None:
    """Run an async test against the real clock."""

    async def within() -> None:
        with trio.fail_after(DEADLINE):
            await talk(*arguments)

    trio.run(within)


async def say(ws, request: object) -> None:
    await ws.send_message(json.dumps(request))


async def hear(ws) -> dict:
    return json.loads(await ws.get_message())


async def ask(ws, request: object) -> dict:
    """One request, one reply."""
    await say(ws, request)
    return await hear(ws)


def read_all(stream: socket.socket) -> bytes:
    data = b""
    while piece := stream.recv(1 << 16):
        data += piece
    return data


def parsed(reply: bytes) -> tuple[int, dict[str, str], bytes]:
    head, _, body = reply.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if headers.get("transfer-encoding") == "chunked":
        body = _unchunked(body)
    return int(first.split()[1]), headers, body


def _unchunked(body: bytes) -> bytes:
    pieces = []
    while body:
        size, _, body = body.partition(b"\r\n")
        pieces.append(body[: int(size, 16)])
        body = body[int(size, 16) + 2 :]
    return b"".join(pieces)


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.02)
