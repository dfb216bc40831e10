"""The other end of a push over the network: the streaming API of a daemon (spec: streaming-facts, section 6).

Pushes go over its WebSocket, everything else over HTTP. A server that does not tell how much it has taken is
understood by its events: with p entries pending, all but the last p that it acknowledged are ingested.
"""

from __future__ import annotations

import json
import os
import socket
import ssl
from typing import Any
from urllib.parse import quote, urlsplit

from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    CloseConnection,
    Event,
    Ping,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from superfluid_cli.exits import ConnectionBroken, Exit, NoDaemon, ServerSaid
from superfluid_cli.push.ends import PATIENCE
from superfluid_cli.push.outbox import Acknowledgement, Batch, Standing

_PIECE = 1 << 16

_TOLD = ("taken", "total_pushed", "total_dropped", "run", "base")
"""What a session object of this server tells of pushes, as `superfluid`."""

LONGEST_FRAME = 16 << 20
"""Bytes of the longest frame that a server takes."""


CONFLICT = 409


class Refused(ServerSaid):
    """A refusal over HTTP, with its status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = Exit.NO_SESSION if status == 404 else Exit.FAILURE


class Server:
    """A server by its URL, `http://host:port`, with the key that it may ask for."""

    def __init__(self, url: str, key: str | None) -> None:
        self.url = url
        parts = urlsplit(url)
        assert parts.hostname is not None
        self.secure = parts.scheme in ("https", "wss")
        self.host = parts.hostname
        self.port = parts.port or (443 if self.secure else 80)
        self.path = parts.path.rstrip("/")
        self.headers = {} if key is None else {"authorization": f"Bearer {key}"}

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def session(self, name: str) -> str:
        return f"{self.path}/v1/sessions/{quote(name, safe='')}"

    def connect(self) -> socket.socket:
        """Raises NoDaemon where nothing answers."""
        try:
            plain = socket.create_connection((self.host, self.port), PATIENCE)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if not self.secure:
                return plain
            return ssl.create_default_context().wrap_socket(plain, server_hostname=self.host)
        except OSError as fault:
            raise NoDaemon(f"no server at {self.url}: {fault.strerror or fault}") from None

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The JSON of a reply. Raises ServerSaid in its own words, NoDaemon, ConnectionBroken."""
        import http.client

        connection = http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE)
        connection.sock = self.connect()
        try:
            payload = None if body is None else json.dumps(body)
            headers = self.headers | ({} if body is None else {"content-type": "application/json"})
            connection.request(method, path, payload, {**headers, "host": self.authority})
            reply = connection.getresponse()
            return _understood(self.url, reply.status, reply.read())
        except (OSError, http.client.HTTPException) as fault:
            raise ConnectionBroken(f"{self.url} did not answer: {str(fault) or type(fault).__name__}") from None
        finally:
            connection.close()

    def create(self, name: str, window: int | None, pre_decode: bool) -> bool:
        """Make a session; False where it is there already."""
        asked: dict[str, Any] = {"id": name, "pre_decode": pre_decode}
        if window is not None:
            asked["window"] = window
        try:
            self.ask("POST", f"{self.path}/v1/sessions", asked)
        except Refused as refusal:
            if refusal.status != CONFLICT:
                raise
            return False
        return True


class WebEnd:
    """One WebSocket to a session. Raises NoDaemon, Refused where the session is not there or the key is wrong."""

    def __init__(self, server: Server, name: str) -> None:
        self._server = server
        self._name = name
        self._run = int.from_bytes(os.urandom(7), "little")
        self._tells = True
        self._taken = 0
        self._acknowledged = 0
        self._open = False
        self._rejected = 0
        self._reason = bytearray()
        self._refusal: tuple[int, bytes] | None = None
        self._text: list[str] = []
        self._seen: list[dict[str, Any]] = []
        self._socket = server.connect()
        self._ws = WSConnection(ConnectionType.CLIENT)
        try:
            self._shake_hands()
        except BaseException:
            self.close()
            raise

    def fileno(self) -> int:
        return self._socket.fileno()

    def hear(self) -> None:
        self._receive()
        self._note_all()

    def push(self, batch: Batch) -> Acknowledgement:
        own = {"superfluid": {"sender": batch.sender, "first": batch.first}} if self._tells else {}
        frame = json.dumps({"type": "push", "data": batch.entries, **own}, ensure_ascii=False)
        if len(frame.encode()) > LONGEST_FRAME:
            raise ServerSaid("an entry is too long for a WebSocket frame of this server")
        self._write(self._ws.send(TextMessage(frame)))
        while True:
            while self._seen:
                message = self._seen.pop(0)
                match message.get("type"):
                    case "push_ack":
                        said = self._acknowledgement(message.get("data"))
                        self._acknowledged = said.total_pushed
                        self._note_all()
                        return said
                    case "error":
                        raise ServerSaid(_message(message.get("data"), "the server refused a push"))
                    case _:
                        self._note(message)
            self._receive()

    def standing(self) -> Standing:
        if self._tells:
            told = self._server.ask("GET", self._server.session(self._name))
            try:
                return Standing(*(int(told["superfluid"][key]) for key in _TOLD))
            except (KeyError, TypeError, ValueError):
                self._tells = False
        # Each connection counts as a new run: what is not known to be ingested is sent again after a break.
        return Standing(self._taken, self._acknowledged, None, self._run, 0)

    def close(self) -> None:
        try:
            if self._open:
                self._socket.sendall(self._ws.send(CloseConnection(1000)))
        except (OSError, LocalProtocolError):
            pass
        self._socket.close()

    def _acknowledgement(self, data: Any) -> Acknowledgement:
        keys = ("pushed", "dropped", "pending", "total_pushed", "total_dropped", "data_version")
        try:
            return Acknowledgement(*(int(data[key]) for key in keys))
        except (KeyError, TypeError, ValueError):
            raise ConnectionBroken(f"{self._server.url} sent an acknowledgement that is none") from None

    def _note_all(self) -> None:
        for message in self._seen:
            self._note(message)
        self._seen.clear()

    def _note(self, message: dict[str, Any]) -> None:
        data = message.get("data")
        if message.get("type") == "data_updated" and isinstance(data, dict) and isinstance(data.get("pending"), int):
            self._taken = max(self._taken, self._acknowledged - data["pending"])

    # --- the wire -------------------------------------------------------------------------------------------------

    def _shake_hands(self) -> None:
        path = self._server.session(self._name) + "/ws"
        headers = [(name.encode(), value.encode()) for name, value in self._server.headers.items()]
        self._write(self._ws.send(Request(host=self._server.authority, target=path, extra_headers=headers)))
        while not self._open:
            self._receive()
            if self._refusal is not None:
                status, body = self._refusal
                _understood(self._server.url, status, body)
                raise ConnectionBroken(f"{self._server.url} answered {status} to a WebSocket")

    def _write(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError as fault:
            raise self._broken(fault) from None

    def _receive(self) -> None:
        """Wait for bytes and take in what they say: pings are answered, messages put into `_seen`."""
        try:
            data = self._socket.recv(_PIECE)
            while isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
                data += self._socket.recv(_PIECE)
            self._ws.receive_data(data or None)
            for event in self._ws.events():
                self._take(event)
        except OSError as fault:
            raise self._broken(fault) from None
        except RemoteProtocolError as fault:
            raise ConnectionBroken(f"{self._server.url} does not speak WebSocket: {fault}") from None

    def _take(self, event: Event) -> None:
        match event:
            case AcceptConnection():
                self._open = True
            case RejectConnection(status_code=status, has_body=has_body):
                self._rejected = status
                if not has_body:
                    self._refusal = (status, b"")
            case RejectData(data=data, body_finished=finished):
                self._reason += data
                if finished:
                    self._refusal = (self._rejected, bytes(self._reason))
            case TextMessage(data=text, message_finished=finished):
                self._text.append(text)
                if finished:
                    self._seen.append(self._parsed("".join(self._text)))
                    self._text.clear()
            case Ping():
                self._write(self._ws.send(event.response()))
            case CloseConnection():
                raise ConnectionBroken(f"{self._server.url} closed the connection")

    def _parsed(self, text: str) -> dict[str, Any]:
        try:
            message = json.loads(text)
        except ValueError:
            message = None
        if not isinstance(message, dict):
            raise ConnectionBroken(f"{self._server.url} sent something that is no message")
        return message

    def _broken(self, fault: OSError) -> ConnectionBroken:
        if isinstance(fault, TimeoutError):
            return ConnectionBroken(f"{self._server.url} does not answer")
        return ConnectionBroken(f"{self._server.url} closed the connection")


def _understood(url: str, status: int, body: bytes) -> Any:
    """The JSON of a good reply. Raises Refused for a bad one, ConnectionBroken where the server is not ready."""
    try:
        told = json.loads(body)
    except ValueError:
        told = None
    if 200 <= status < 300 and told is not None:
        return told
    error = told.get("error") if isinstance(told, dict) else None
    message = _message(error, f"{url} answered {status}")
    if status >= 500:
        raise ConnectionBroken(message)
    raise Refused(status, message)


def _message(data: Any, otherwise: str) -> str:
    message = data.get("message") if isinstance(data, dict) else None
    return message if isinstance(message, str) else otherwise
