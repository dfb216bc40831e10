"""A server that takes pushes over HTTP and WebSocket, durable where the test says so."""

from __future__ import annotations

import json
import random
import socket
import threading
from collections import deque
from typing import Any

from wsproto import ConnectionType, WSConnection
from wsproto.connection import ConnectionState
from wsproto.events import AcceptConnection, CloseConnection, Ping, Pong, Request, TextMessage

from tests.cli.fake_feed import NAME, Disk
from tests.cli.fake_server import DEADLINE
from tests.cli.mortal import Mortal

KEY = "LSK-1"


class FakeWebFeed(Mortal):
    """One server's life. Every look at the session ingests `appetite` entries; it dies after `pushes` pushes.

    With `tells`, its session object tells what was taken, as ours does; without, only events say so, one for each
    push that is answered.
    """

    def __init__(self, disk: Disk, *, port: int = 0, tells: bool = True, appetite: int = 1 << 30, pushes: int = -1):
        super().__init__(socket.create_server(("127.0.0.1", port)))
        self.disk = disk
        self.appetite = appetite
        self.queue: deque[str] = deque()
        self.pushed = 0
        self.pongs = 0
        self.keys: list[str] = []
        self.changed = threading.Condition()
        self._tells = tells
        self._pushes = pushes
        self._run = random.getrandbits(60)
        self._base = self._total = disk.taken
        self.port: int = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.live()

    def wait_for_pushes(self, count: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.pushed >= count, DEADLINE)

    def _serve(self, connection: socket.socket) -> None:
        try:
            head = b""
            while b"\r\n\r\n" not in head:
                if not (piece := connection.recv(1 << 16)):
                    return
                head += piece
            lines, _, body = head.partition(b"\r\n\r\n")
            method, path, _ = lines.split(b"\r\n")[0].decode().split()
            headers = {
                name.strip().lower(): value.strip()
                for name, _, value in (line.decode().partition(":") for line in lines.split(b"\r\n")[1:])
            }
            self.keys.append(headers.get("authorization", ""))
            if headers.get("authorization") != f"Bearer {KEY}":
                self._answer(connection, 401, {"error": {"message": "no key", "type": "authentication_error"}})
            elif method == "POST" and path == "/v1/sessions":
                while len(body) < int(headers["content-length"]):
                    body += connection.recv(1 << 16)
                self._create(connection, json.loads(body))
            elif not self.disk.exists or path.split("/")[3] != NAME:
                self._answer(connection, 404, {"error": {"message": f"no such session '{path.split('/')[3]}'"}})
            elif path.endswith("/ws"):
                self._socket(connection, head)
            else:
                self._ingest()
                told = {"taken": self.disk.taken, "run": self._run, "base": self._base}
                told |= {"total_pushed": self._total, "total_dropped": 0}
                own = {"superfluid": told} if self._tells else {}
                self._answer(connection, 200, {"id": NAME, "object": "session", "window": 512, **own})
        except OSError:
            return

    def _create(self, connection: socket.socket, asked: Any) -> None:
        if self.disk.exists:
            self._answer(connection, 409, {"error": {"message": f"session '{asked['id']}' exists already"}})
            return
        assert asked == {"id": NAME, "pre_decode": False, "window": 512}
        self.disk.exists = True
        self._answer(connection, 201, {"id": NAME})

    def _answer(self, connection: socket.socket, status: int, told: Any) -> None:
        body = json.dumps(told).encode()
        connection.sendall(b"HTTP/1.1 %d X\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % (status, len(body)))
        connection.sendall(body)
        connection.shutdown(socket.SHUT_WR)

    def _socket(self, connection: socket.socket, head: bytes) -> None:
        ws = WSConnection(ConnectionType.SERVER)
        ws.receive_data(head)

        def say(kind: str, data: Any) -> None:
            connection.sendall(ws.send(TextMessage(json.dumps({"type": kind, "data": data}))))

        begun: list[str] = []
        while True:
            for event in ws.events():
                match event:
                    case Request():
                        # What follows the handshake may come in the same piece as it does.
                        hello = json.dumps({"type": "connected", "data": {"session_id": NAME, "data_version": 0}})
                        connection.sendall(
                            ws.send(AcceptConnection()) + ws.send(TextMessage(hello)) + ws.send(Ping(b"hb"))
                        )
                    case TextMessage(data=text):
                        begun.append(text)
                        if not event.message_finished:
                            continue
                        message = json.loads("".join(begun))
                        begun.clear()
                        assert message["type"] == "push"
                        self.queue.extend(message["data"])
                        self._total += len(message["data"])
                        with self.changed:
                            self.pushed += 1
                            self.changed.notify_all()
                        counts = {"pushed": len(message["data"]), "dropped": 0, "pending": len(self.queue)}
                        totals = {"total_pushed": self._total, "total_dropped": 0, "data_version": 0}
                        say("push_ack", counts | totals)
                        if not self._tells:
                            self._ingest()
                            say("data_updated", {"data_version": 1, "tokens": 1, "pending": len(self.queue)})
                        if self.pushed == self._pushes:
                            self.die()
                    case Pong():
                        self.pongs += 1
                    case CloseConnection():
                        if ws.state is ConnectionState.REMOTE_CLOSING:
                            connection.sendall(ws.send(event.response()))
                        return
            ws.receive_data(connection.recv(1 << 16) or None)

    def _ingest(self) -> None:
        for _ in range(min(self.appetite, len(self.queue))):
            self.disk.entries.append(self.queue.popleft())
