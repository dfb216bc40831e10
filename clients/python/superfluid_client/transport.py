"""HTTP to the daemon: one connection a call."""

from __future__ import annotations

import json
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Any
from urllib.parse import urlsplit

from superfluid_client.credential import Credential
from superfluid_client.errors import SuperfluidError, Unreachable

HEALTH_TIMEOUT = 5.0
LONGEST_REFUSAL = 1 << 16
"""Bytes of a refusal that are read."""


class Frames:
    """The frames of one event stream, parsed, up to its `[DONE]`. Whoever got it closes it."""

    def __init__(self, connection: HTTPConnection, response: HTTPResponse, place: str) -> None:
        self._connection = connection
        self._response = response
        self._place = place

    def __iter__(self) -> Frames:
        return self

    def __next__(self) -> Any:
        while True:
            try:
                line = self._response.readline()
            except (OSError, HTTPException) as fault:
                raise Unreachable(f"{self._place}: the stream broke: {_why(fault)}") from fault
            if not line:
                raise StopIteration
            if not line.startswith(b"data:"):
                continue
            data = line[len(b"data:") :].strip()
            if data == b"[DONE]":
                raise StopIteration
            return _parsed(data, self._place)

    def close(self) -> None:
        """Hang up; a generation that goes on is then cancelled by the daemon."""
        self._response.close()
        self._connection.close()


class Transport:
    """Posts JSON to one daemon. Raises SuperfluidError for every answer but 200."""

    def __init__(self, url: str, credential: Credential, timeout: float) -> None:
        parts = urlsplit(url)
        extra = parts.path not in ("", "/") or parts.query or parts.fragment or "@" in parts.netloc
        if parts.scheme != "http" or not parts.hostname or extra:
            raise ValueError(f"{url!r} is not http://host[:port]")
        self.url = url.rstrip("/")
        self._host = parts.hostname
        self._port = parts.port or 80
        self._credential = credential
        self._timeout = timeout

    def post(self, path: str, body: Any) -> Any:
        """The answer to `body`, parsed."""
        connection, response = self._send(path, body)
        try:
            raw = response.read()
        except (OSError, HTTPException) as fault:
            raise Unreachable(f"{self.url}{path}: the answer broke off: {_why(fault)}") from fault
        finally:
            response.close()
            connection.close()
        return _parsed(raw, f"{self.url}{path}")

    def stream(self, path: str, body: Any) -> Frames:
        """The events that answer `body`, as they come."""
        connection, response = self._send(path, body)
        return Frames(connection, response, f"{self.url}{path}")

    def answers(self, path: str) -> bool:
        """Whether a GET finds the daemon well, soon."""
        connection = HTTPConnection(self._host, self._port, timeout=HEALTH_TIMEOUT)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            response.read()
        except (OSError, HTTPException):
            return False
        finally:
            connection.close()
        return response.status == 200

    def _send(self, path: str, body: Any) -> tuple[HTTPConnection, HTTPResponse]:
        token = self._credential()
        headers = {
            "authorization": f"Bearer {token}",
            "x-superfluid-csrf": token,
            "content-type": "application/json",
        }
        data = json.dumps(body, allow_nan=False).encode()
        connection = HTTPConnection(self._host, self._port, timeout=self._timeout)
        try:
            connection.request("POST", path, data, headers)
            response = connection.getresponse()
        except (OSError, HTTPException) as fault:
            connection.close()
            hint = "; is superfluid serve running with --web?" if isinstance(fault, ConnectionRefusedError) else ""
            raise Unreachable(f"{self.url}{path}: {_why(fault)}{hint}") from fault
        if response.status != 200:
            said = _said(response)
            response.close()
            connection.close()
            raise SuperfluidError(f"{path}: {response.status} {said}", response.status)
        return connection, response


def _parsed(data: bytes, place: str) -> Any:
    try:
        return json.loads(data)
    except ValueError as fault:
        raise SuperfluidError(f"{place}: not JSON: {fault}") from fault


def _said(response: HTTPResponse) -> str:
    """The reason of a status, and what the daemon said about it, as far as there is any."""
    try:
        message = json.loads(response.read(LONGEST_REFUSAL))["Err"]["message"]
    except (OSError, HTTPException, ValueError, KeyError, TypeError):
        message = ""
    return ": ".join(part for part in (response.reason, str(message)) if part)


def _why(fault: Exception) -> str:
    return str(fault) or type(fault).__name__
