"""Headless Chromium over its DevTools protocol, where there is one."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.acceptance.websocket import WebSocket
from tests.support.daemon import DEADLINE

NAMES = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = (
    "--headless=new",
    "--no-sandbox",  # tests run as root in a container
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--remote-debugging-port=0",
)


def program() -> str | None:
    """Chromium's path, None where there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Page:
    """One tab."""

    def __init__(self, port: int, path: str) -> None:
        self._socket = WebSocket(("127.0.0.1", port), path)
        self._last = 0
        self.console: list[str] = []
        self.call("Runtime.enable")
        self.call("Page.enable")

    def call(self, method: str, **params: Any) -> Any:
        """One command of the protocol; its result."""
        self._last += 1
        self._socket.send(json.dumps({"id": self._last, "method": method, "params": params}))
        while True:
            message = json.loads(self._socket.receive())
            if message.get("method") == "Runtime.consoleAPICalled":
                words = [str(one.get("value", one.get("description"))) for one in message["params"]["args"]]
                self.console.append(" ".join(words))
            elif message.get("id") == self._last:
                assert "error" not in message, message
                return message["result"]

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)
        self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    def evaluate(self, expression: str) -> Any:
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def until(self, expression: str) -> Any:
        """What an expression is once it is true."""
        deadline = time.monotonic() + DEADLINE
        while not (found := self.evaluate(expression)):
            assert time.monotonic() < deadline, (expression, self.evaluate("document.body.innerText"), self.console)
            time.sleep(0.05)
        return found

    def close(self) -> None:
        self._socket.close()


@contextmanager
def browser() -> Iterator[Page]:
    """A browser of its own, with an empty profile."""
    path = program()
    assert path is not None
    with tempfile.TemporaryDirectory(prefix="sf-", ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [path, *_FLAGS, f"--user-data-dir={profile}", "about:blank"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr is not None
        try:
            port = _port(process.stderr)
            drain = threading.Thread(target=process.stderr.read, daemon=True)
            drain.start()
            page = Page(port, _tab(port))
            try:
                yield page
            finally:
                page.close()
        finally:
            process.terminate()
            process.wait(DEADLINE)
            drain.join(DEADLINE)
            process.stderr.close()


def _port(lines: Any) -> int:
    for line in lines:
        if found := re.match(r"DevTools listening on ws://127\.0\.0\.1:(\d+)/", line):
            return int(found[1])
    raise AssertionError("Chromium did not start")


def _tab(port: int) -> str:
    """The path of the first tab's WebSocket."""
    deadline = time.monotonic() + DEADLINE
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE)
        connection.request("GET", "/json/list")
        tabs = json.loads(connection.getresponse().read())
        connection.close()
        for tab in tabs:
            if tab["type"] == "page":
                return tab["webSocketDebuggerUrl"].partition(f":{port}")[2]
        assert time.monotonic() < deadline, tabs
        time.sleep(0.05)


class _Handler(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None: ...


@contextmanager
def pages(directory: Path) -> Iterator[str]:
    """A web server for the files of a directory; its origin."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, directory=str(directory)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://localhost:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(DEADLINE)
