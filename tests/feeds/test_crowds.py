"""Many followers, many sessions and much data at once, over HTTP: each gets what it is promised, and feeds go on."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import suppress

import pytest

from superfluid.sessions.backlog import MOST_BYTES, MOST_ENTRIES
from tests.http.server import Server, eventually, fake
from tests.support.daemon import DEADLINE

PATH = "/v1/sessions"
READERS = 64
LIVE = 256
BATCHES = 60
UNREAD = 160


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("crowd"), worker_argv=fake(), max_context=8192)
    yield server
    server.close()


class Reader:
    """An event stream that is read when somebody says so, in small bites, from a small buffer."""

    def __init__(self, server: Server, name: str) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        self._socket.settimeout(DEADLINE)
        self._socket.connect(server.address)
        self._socket.sendall(
            f"GET {PATH}/{name}/events HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
        )
        self.events: list[tuple[str, dict]] = []
        self._rest = b""

    def read(self, size: int) -> bool:
        """So many bytes at the most; false at the end."""
        piece = self._socket.recv(size)
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            if line.startswith(b"event: "):
                self._kind = line[7:].decode()
            elif line.startswith(b"data: "):
                self.events.append((self._kind, json.loads(line[6:])))
        return bool(piece)

    def until(self, kind: str, version: int = 0) -> None:
        """Until an event of that kind and data version was read."""
        while self.told(kind)[-1:] != [version]:
            assert self.read(1 << 16)

    def to_the_end(self) -> None:
        """Also where the system has given up on what this did not read for so long."""
        with suppress(ConnectionResetError):
            while self.read(1 << 16):
                pass

    def close(self) -> None:
        self._socket.close()

    def told(self, kind: str) -> list[int]:
        """The data versions of the events of a kind."""
        return [data["data_version"] for told, data in self.events if told == kind]


def made(server: Server, name: str, **fields: object) -> None:
    reply = server.http.post(PATH, json={"id": name, **fields})
    assert reply.status_code == 201, reply.text


def pushed(server: Server, name: str, *lines: str) -> dict:
    reply = server.http.post(f"{PATH}/{name}/push", json={"data": lines})
    assert reply.status_code == 200, reply.text
    return reply.json()


def ingested(server: Server, name: str, version: int) -> dict:
    def there() -> bool:
        return server.http.get(f"{PATH}/{name}").json()["data_version"] >= version

    eventually(there)
    return server.http.get(f"{PATH}/{name}").json()


def test_slow_readers(server):
    """Who lags a little misses nothing."""
    made(server, "slow", window=500)
    readers = [Reader(server, "slow") for _ in range(READERS)]
    for reader in readers:
        reader.until("connected")
    for version in range(1, BATCHES + 1):
        pushed(server, "slow", f"tick {version}")
        ingested(server, "slow", version)
        for reader in readers[version % 4 :: 4]:
            reader.read(16)
    assert server.http.delete(f"{PATH}/slow").status_code == 200
    for reader in readers:
        reader.to_the_end()
        assert [kind for kind, _ in reader.events] == ["connected"] + ["data_updated"] * BATCHES
        assert reader.told("data_updated") == list(range(1, BATCHES + 1))
        reader.close()


@pytest.mark.heavy
def test_a_reader_that_never_reads(server):
    """It is let go once it is too far behind, while another who follows the same feed hears all of it."""
    made(server, "deaf", window=500)
    # an event tells the whole query: what nobody reads soon fills the connection
    query = "responsibilities " * 5500
    assert server.http.post(f"{PATH}/deaf/flash", json={"query": query, "max_tokens": 2}).status_code == 200
    deaf, other = Reader(server, "deaf"), Reader(server, "deaf")
    for reader in (deaf, other):
        reader.until("connected")
    for version in range(1, UNREAD + 1):
        pushed(server, "deaf", f"tick {version}")
        other.until("flash_ready", version)
    assert other.told("data_updated") == list(range(1, UNREAD + 1))
    deaf.to_the_end()
    told = deaf.told("flash_ready")
    assert told == list(range(1, len(told) + 1))
    assert len(told) < UNREAD
    again = Reader(server, "deaf")
    again.until("flash_ready", UNREAD)
    assert [(kind, data["data_version"]) for kind, data in again.events] == [
        ("connected", UNREAD),
        ("flash_ready", UNREAD),
    ]
    for reader in (deaf, other, again):
        reader.close()
    assert server.http.delete(f"{PATH}/deaf").status_code == 200


def test_eight_mebibytes_at_once(server):
    made(server, "wide", window=600)
    made(server, "beside", window=600)
    each = MOST_BYTES // MOST_ENTRIES
    lines = [f"{number:05} ".ljust(each - 1, "x") for number in range(MOST_ENTRIES)]
    for round_ in range(1, 3):
        ack = pushed(server, "wide", *lines)
        assert (ack["pushed"], ack["total_pushed"]) == (MOST_ENTRIES, round_ * MOST_ENTRIES)
        assert ack["pending"] <= MOST_ENTRIES
        assert ack["pending_bytes"] <= MOST_BYTES
        pushed(server, "beside", "tick")
        ingested(server, "beside", round_)
    one = pushed(server, "wide", "y" * MOST_BYTES)
    assert one["dropped"] >= 1
    assert one["pushed"] == 1
    last = pushed(server, "wide", "the last line")

    def settled() -> bool:
        now = server.http.get(f"{PATH}/wide").json()
        return now["pending"] == 0 and now["superfluid"]["taken"] == last["total_pushed"]

    eventually(settled)
    now = server.http.get(f"{PATH}/wide").json()
    assert now["kv_tokens"] + 1 >= now["data_end"]
    assert 0 < now["data_end"] - now["frozen_end"] <= 600
    for name in ("wide", "beside"):
        assert server.http.delete(f"{PATH}/{name}").status_code == 200


def test_as_many_sessions_as_may_live(server):
    names = [f"live-{number}" for number in range(LIVE)]
    for name in names:
        made(server, name, window=100)
    refused = server.http.post(PATH, json={"id": "one-more"})
    assert refused.status_code == 403
    assert f"at most {LIVE} live session(s); delete one first" in refused.json()["error"]["message"]
    for number, name in enumerate(names):
        pushed(server, name, f"tick {number}", "and on")
    for name in names:
        assert ingested(server, name, 1)["kv_tokens"] > 0
    listed = server.http.get(PATH).json()["data"]
    assert [session["id"] for session in listed] == names
    assert {session["pending"] for session in listed} == {0}
    answer = server.http.post(f"{PATH}/{names[0]}/generate", json={"prompt": "what?", "max_tokens": 3})
    assert answer.json()["data_version"] == 1
    assert server.http.delete(f"{PATH}/{names[7]}").status_code == 200
    made(server, "one-more")
