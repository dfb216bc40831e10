"""A long run: requests that end, that are left and that are refused cost nothing that stays."""

import random
import socket

import psutil
import pytest

from tests.http.server import Server, eventually, request

ROUNDS = 100
"""Each round is three requests that end, one that its client leaves, one that is refused."""


def _leave(server, draw):
    """A client that goes away, early or late."""
    body = {"messages": [{"role": "user", "content": f"Story {draw.random()}."}], "max_tokens": 200, "stream": True}
    with socket.create_connection(server.address, 60) as stream:
        stream.sendall(request("/v1/chat/completions", body))
        for _ in range(draw.randrange(4)):
            stream.recv(256)


def _round(server, draw):
    for _ in range(3):
        assert server.chat(f"Say {draw.random()}.", max_tokens=draw.randrange(1, 4)).status_code == 200
    _leave(server, draw)
    refused = draw.choice([{"max_tokens": 0}, {"temperature": "hot"}, {"messages": []}, {"n": 99}])
    assert server.chat(**refused).status_code == 400


def _footprint(server):
    """Resident bytes, descriptors and processes of the daemon and its worker, at rest."""
    eventually(server.idle)
    daemon = psutil.Process(server.daemon.process.pid)
    family = [daemon, *daemon.children(recursive=True)]
    return sum(one.memory_info().rss for one in family), sum(one.num_fds() for one in family), len(family)


@pytest.mark.heavy
@pytest.mark.timeout(1200)
def test_a_soak_leaves_nothing_behind(tmp_path):
    draw = random.Random(20)
    # Host memory for KV fills up to its budget by design: it is kept out of the sum by being small.
    server = Server(tmp_path, max_context=1024, kv_host_bytes=8 << 20)
    try:
        for _ in range(20):
            _round(server, draw)
        memory, descriptors, processes = _footprint(server)
        for _ in range(ROUNDS):
            _round(server, draw)
        after, descriptors_after, processes_after = _footprint(server)
        assert processes_after == processes == 2
        assert descriptors_after <= descriptors + 2
        assert after < memory * 1.05
        assert "Traceback" not in (server.daemon.sessions / "logs" / "serve.log").read_text()
    finally:
        server.close()
