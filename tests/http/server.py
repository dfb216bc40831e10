"""A daemon's HTTP listener as tests see it: the official client, plain requests, raw bytes, and its metrics."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import openai
from prometheus_client.parser import text_string_to_metric_families

from tests.support.daemon import DEADLINE, FAKE, Daemon


def fake(**settings: int) -> list[str]:
    """The command of a fake worker; see `superfluid.engine.fake.FakeModel`."""
    return [*FAKE, ",".join(f"{name}={value}" for name, value in settings.items())]


class Server:
    """A running daemon. `http` are HttpConfig's settings, `settings` ServeConfig's others."""

    def __init__(self, directory: Path, http: dict[str, object] | None = None, **settings: object) -> None:
        self.daemon = Daemon(directory, http={"port": 0, **(http or {})}, **settings)
        try:
            self.daemon.start()
        except BaseException:
            self.daemon.close()
            raise
        self.url = self.daemon.url()
        self.address = (urlsplit(self.url).hostname, urlsplit(self.url).port)
        self.http = httpx.Client(base_url=self.url, timeout=DEADLINE)
        self.openai = openai.OpenAI(base_url=self.url + "/v1", api_key="none", max_retries=0, timeout=DEADLINE)

    def close(self) -> None:
        self.http.close()
        self.openai.close()
        self.daemon.close()

    def chat(self, content: object = "Hello.", **fields: object) -> httpx.Response:
        """One chat request, greedy and short unless said otherwise."""
        body = {"messages": [{"role": "user", "content": content}], "temperature": 0, "max_tokens": 4, **fields}
        return self.http.post("/v1/chat/completions", json=body)

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples that bear these labels."""
        samples = [
            sample
            for family in text_string_to_metric_families(self.http.get("/metrics").text)
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]
        assert samples, f"no metric {name}"
        return sum(sample.value for sample in samples)

    def idle(self) -> bool:
        return not self.metric("superfluid_lanes_active") and not self.metric("superfluid_queue_depth")

    @contextmanager
    def connection(self):
        """A raw connection."""
        with socket.create_connection(self.address, DEADLINE) as stream:
            yield stream

    def raw(self, data: bytes) -> bytes:
        """Send bytes; what comes back until the server closes."""
        with self.connection() as stream:
            stream.sendall(data)
            return read_all(stream)

    def post(self, path: str, body: bytes, *headers: str, kind: str = "application/json") -> tuple[int, dict]:
        """A request of any bytes; its status and parsed reply."""
        lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Connection: close", *headers]
        if kind:
            lines.append(f"Content-Type: {kind}")
        if not any(line.lower().startswith(("content-length", "transfer-encoding")) for line in headers):
            lines.append(f"Content-Length: {len(body)}")
        return parsed(self.raw("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body))


def read_all(stream: socket.socket) -> bytes:
    data = b""
    while piece := stream.recv(1 << 16):
        data += piece
    return data


def parsed(reply: bytes) -> tuple[int, dict]:
    head, _, body = reply.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.02)


def request(path: str, body: dict, *headers: str) -> bytes:
    """The bytes of a POST."""
    data = json.dumps(body).encode()
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: localhost",
        "Content-Type: application/json",
        f"Content-Length: {len(data)}",
        *headers,
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data
