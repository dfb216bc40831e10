"""Starts the servers that benchmarks compare, on the embedded model, and talks to any OpenAI-compatible one."""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

DEADLINE = 900.0


@dataclass(frozen=True)
class Server:
    """One side of a comparison."""

    name: str
    url: str
    restart: Callable[..., None] | None = None
    """end it as a service manager would, or with the signal `by`, and start it again on the same files; None where it
    is not ours to end"""
    socket: Path | None = None
    """of superfluid's session API"""


@dataclass
class Reply:
    """What one streamed request gave. Times are seconds since it was sent; `pieces` is when each text piece came."""

    text: str = ""
    prompt: int = 0
    cached: int = 0
    completion: int = 0
    first: float = 0.0
    total: float = 0.0
    pieces: list[float] = field(default_factory=list)
    error: str | None = None

    @property
    def computed(self) -> int:
        """Prompt tokens that were computed, not found."""
        return self.prompt - self.cached

    @property
    def longest_pause(self) -> float:
        return max((after - before for before, after in zip(self.pieces, self.pieces[1:], strict=False)), default=0.0)


def chat(server: Server, messages: list[dict[str, str]], tokens: int, *, qos: str = "agent") -> Reply:
    """One streamed chat request, greedy, of exactly `tokens` tokens."""
    reply = Reply()
    body = {
        "messages": messages,
        "max_tokens": tokens,
        "temperature": 0,
        "seed": 1,
        "stream": True,
        "stream_options": {"include_usage": True},
        "ignore_eos": True,
        "cache_prompt": True,
    }
    parts = urlsplit(server.url)
    connection = http.client.HTTPConnection(parts.hostname or "127.0.0.1", parts.port, timeout=DEADLINE)
    began = time.perf_counter()
    try:
        headers = {"content-type": "application/json", "x-superfluid-qos": qos}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        response = connection.getresponse()
        if response.status != 200:
            reply.error = f"{response.status}: {response.read()[:200]!r}"
            return reply
        _read_stream(response, reply, began)
    except (OSError, http.client.HTTPException) as fault:
        reply.error = f"{type(fault).__name__}: {fault}"
    finally:
        connection.close()
    reply.total = time.perf_counter() - began
    return reply


def _read_stream(response: http.client.HTTPResponse, reply: Reply, began: float) -> None:
    for line in response:
        if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
            continue
        chunk = json.loads(line[6:])
        if "error" in chunk:
            reply.error = str(chunk["error"])
            continue
        if usage := chunk.get("usage"):
            reply.prompt = usage["prompt_tokens"]
            reply.completion = usage["completion_tokens"]
            reply.cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
        if timings := chunk.get("timings"):
            reply.cached = timings.get("cache_n", reply.cached)
        for choice in chunk.get("choices", ()):
            text = (choice.get("delta") or {}).get("content")
            if text:
                reply.pieces.append(time.perf_counter() - began)
                reply.first = reply.first or reply.pieces[-1]
                reply.text += text


def at_once(calls: list) -> list[Reply]:  # type: ignore[type-arg]
    """Run the calls in threads that start together; their replies in order."""
    replies: list[Reply] = [Reply(error="did not run")] * len(calls)
    gate = threading.Barrier(len(calls))

    def run(place: int) -> None:
        gate.wait()
        replies[place] = calls[place]()

    threads = [threading.Thread(target=run, args=(place,)) for place in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return replies


def embedded_model() -> Path:
    from superfluid.model.gguf import locate

    return locate(None)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def superfluid(threads: int, lanes: int, context: int, *extra: str):  # type: ignore[no-untyped-def]
    """A superfluid daemon on the embedded model, with `lanes` lanes of `context` tokens."""
    port = free_port()
    with tempfile.TemporaryDirectory() as own:
        arguments = [
            *(sys.executable, "-m", "superfluid_cli", "serve"),
            *("--socket", f"{own}/s", "--sessions", f"{own}/sessions"),
            *("--http", f"127.0.0.1:{port}", "--threads", str(threads)),
            *("--max-batch", str(lanes), "--max-context", str(context), *extra),
        ]
        with _running(arguments, "superfluid", f"http://127.0.0.1:{port}", Path(own) / "s") as server:
            yield server


@contextlib.contextmanager
def llama_server(binary: str, threads: int, lanes: int, context: int):  # type: ignore[no-untyped-def]
    """llama.cpp's own server, with as many slots of the same length."""
    port = free_port()
    arguments = [
        *(binary, "-m", str(embedded_model()), "--host", "127.0.0.1", "--port", str(port)),
        *("-np", str(lanes), "-c", str(lanes * context), "-t", str(threads), "-tb", str(threads), "--jinja"),
    ]
    with _running(arguments, "llama-server", f"http://127.0.0.1:{port}") as server:
        yield server


class _Running:
    """A server process that was started here."""

    def __init__(self, arguments: list[str], name: str, url: str, socket: Path | None) -> None:
        self._arguments = arguments
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        self.server = Server(name, url, self.restart, socket)
        self._process = self._start()

    def restart(self, by: signal.Signals = signal.SIGTERM) -> None:
        self.end(by)
        self._process = self._start()

    def end(self, by: signal.Signals = signal.SIGTERM) -> None:
        self._process.send_signal(by)
        try:
            self._process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def _start(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(self._arguments, stdout=self._said, stderr=self._said)
        deadline = time.monotonic() + DEADLINE
        while not _healthy(self.server):
            if process.poll() is not None or time.monotonic() > deadline:
                process.kill()
                self._said.seek(0)
                said = self._said.read()[-2000:].decode(errors="replace")
                raise SystemExit(f"{self.server.name} does not start: {said}")
            time.sleep(0.1)
        return process


@contextlib.contextmanager
def _running(arguments: list[str], name: str, url: str, socket: Path | None = None):  # type: ignore[no-untyped-def]
    running = _Running(arguments, name, url, socket)
    try:
        yield running.server
    finally:
        running.end()


def _healthy(server: Server) -> bool:
    parts = urlsplit(server.url)
    connection = http.client.HTTPConnection(parts.hostname or "127.0.0.1", parts.port, timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()
