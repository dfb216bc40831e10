"""The listener as a part of the daemon: health, metrics, models, a worker that dies, and the end."""

import json
import signal
import socket
import subprocess
import threading
import time
from datetime import datetime

import httpx
import pytest

from tests.http.server import eventually, fake, read_all, request
from tests.support.daemon import DEADLINE, Daemon

CHAT = "/v1/chat/completions"
LONG = {
    "messages": [{"role": "user", "content": "Talk."}],
    "temperature": 0,
    "max_tokens": 1500,
    "ignore_eos": True,
    "stream": True,
}


def frames(reply):
    return [frame.removeprefix("data: ") for frame in reply.split("\n\n") if frame]


def test_health(quick):
    quick.chat(max_tokens=3)
    before = quick.http.get("/health").json()
    assert before["status"] == "ok"
    usage = quick.chat("Something new to be counted.", max_tokens=3).json()["usage"]
    quick.chat(max_tokens=3, stream=True)
    assert quick.chat(temperature=9).status_code == 400  # never started
    after = quick.http.get("/healthz").json()
    grown = {name: after[name] - before[name] for name in after if isinstance(after[name], int)}
    assert (grown["requests_started"], grown["requests_ok"], grown["requests_failed"]) == (2, 2, 0)
    assert grown["generated_tokens"] == 6
    assert 0 < grown["prefix_cached_tokens"] < grown["prompt_tokens"]
    assert grown["prompt_tokens"] > usage["prompt_tokens"]
    assert grown["uptime_ms"] >= 0
    assert grown["steps"] >= 2
    assert (after["queued"], after["running"]) == (0, 0)


def test_models(quick):
    listed = quick.openai.models.list()
    (model,) = listed.data
    assert quick.openai.models.retrieve(model.id) == model
    assert (model.object, model.owned_by, model.max_model_len) == ("model", "superfluid", 2048)
    assert abs(model.created - time.time()) < 3600
    assert (model.max_input_tokens, model.max_tokens, model.lifecycle) == (2047, 2047, "active")
    assert datetime.fromisoformat(model.created_at).timestamp() == model.created
    assert quick.openai.models.retrieve(model.id.upper()) == model
    page = quick.http.get("/v1/models").json()
    assert (page["has_more"], page["first_id"], page["last_id"]) == (False, model.id, model.id)
    assert quick.chat().json()["model"] == model.id


def test_metrics_count(quick):
    names = ("ticks_total", "prefill_tokens_total", "decode_tokens_total", "warm_prefix_tokens_total")
    before = {name: quick.metric(f"superfluid_{name}") for name in names}
    first = quick.metric("superfluid_ttft_seconds_count")
    usage = quick.chat("Count these words, which nobody has said before.", max_tokens=20).json()["usage"]
    again = quick.chat("Count these words, which nobody has said before.", max_tokens=20).json()["usage"]
    after = {name: quick.metric(f"superfluid_{name}") - before[name] for name in names}
    assert usage["completion_tokens"] == again["completion_tokens"] == 20
    assert after["ticks_total"] >= 2
    cached = [one["prompt_tokens_details"]["cached_tokens"] for one in (usage, again)]
    assert after["warm_prefix_tokens_total"] == sum(cached)
    # The last of the drawn tokens is never decoded, and the first came of the prompt's last.
    computed = after["prefill_tokens_total"] + after["decode_tokens_total"]
    assert computed == usage["prompt_tokens"] * 2 - sum(cached) + 2 * 19
    assert quick.metric("superfluid_ttft_seconds_count") - first == 2
    assert quick.metric("superfluid_ttft_seconds_bucket", le="+Inf") - first == 2
    assert quick.metric("superfluid_node_info", host=socket.gethostname()) == 1
    assert quick.metric("superfluid_queue_depth", **{"class": "background_agent"}) == 0
    assert quick.http.get("/metrics").headers["content-type"].startswith("text/plain; version=0.0.4")


def test_a_worker_that_dies_ends_streams_with_an_error(servers):
    server = servers(worker_argv=fake(delay_us=2000))
    with server.http.stream("POST", CHAT, json=LONG) as reply:
        lines = reply.iter_lines()
        while "content" not in next(lines):
            pass
        for worker in server.daemon.workers():
            worker.send_signal(signal.SIGKILL)
        *_, error, end = [line for line in lines if line]
    assert json.loads(error.removeprefix("data: "))["error"]["type"] == "api_error"
    assert end == "data: [DONE]"
    assert server.chat().status_code == 200
    assert server.metric("superfluid_worker_respawns_total") == 1


def test_a_failure_before_the_first_byte_is_a_status(servers):
    server = servers(worker_argv=fake(fail_every=1))
    for stream in (True, False):
        reply = server.chat(stream=stream)
        assert reply.status_code == 500
        assert reply.json()["error"]["code"] == "generation_failed"


def test_a_full_queue(servers):
    server = servers(worker_argv=fake(delay_us=2000), max_batch=1)
    streams = [socket.create_connection(server.address, DEADLINE) for _ in range(257)]
    try:
        for stream in streams:
            stream.sendall(request(CHAT, LONG))
        eventually(lambda: server.metric("superfluid_queue_depth") == 256)
        for stream in (True, False):
            reply = server.chat(stream=stream)
            assert (reply.status_code, reply.json()["error"]["type"]) == (429, "rate_limit_error")
            assert int(reply.headers["retry-after"]) > 0
    finally:
        for stream in streams:
            stream.close()
    eventually(server.idle)


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "in one piece"])
def test_draining_ends_replies(servers, stream):
    server = servers(worker_argv=fake(delay_us=2000), drain_timeout=30)
    with server.connection() as idle, server.connection() as silent:
        idle.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert idle.recv(12) == b"HTTP/1.1 200"
        found = []

        def ask():
            found.append(httpx.post(server.url + CHAT, json={**LONG, "stream": stream}, timeout=DEADLINE))

        asking = threading.Thread(target=ask)
        asking.start()
        eventually(lambda: server.metric("superfluid_decode_tokens_total") > 20)
        server.http.close()
        began = time.monotonic()
        assert server.daemon.stop() == 0
        assert time.monotonic() - began < 25
        asking.join(DEADLINE)
        read_all(idle)
        read_all(silent)
    (reply,) = found
    if stream:
        *_, error, end = frames(reply.text)
        assert (json.loads(error)["error"]["code"], end) == ("shutting_down", "[DONE]")
    else:
        assert (reply.status_code, reply.json()["error"]["code"]) == (503, "shutting_down")


def test_who_does_not_read_does_not_hold_the_end_up(servers):
    server = servers(max_context=16384, drain_timeout=10)
    with socket.socket() as stream:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stream.connect(server.address)
        stream.sendall(request(CHAT, {**LONG, "max_tokens": 8000, "n": 4}))
        eventually(lambda: server.metric("superfluid_decode_tokens_total") > 20_000)
        began = time.monotonic()
        assert server.daemon.stop() == 0
        assert time.monotonic() - began < 9


def test_a_taken_address_is_found_before_the_model_loads(quick, tmp_path):
    daemon = Daemon(tmp_path, http={"port": quick.address[1]}, worker_argv=["/bin/false"])
    try:
        daemon.start(ready=False)
        assert daemon.process.wait(DEADLINE) == 1
    finally:
        daemon.close()
    said = [line for line in daemon.said().splitlines() if line.startswith("superfluid:")]
    assert said == [
        f"superfluid: http 127.0.0.1:{quick.address[1]}: Address already in use; "
        "name another address with --http, or none with --no-http"
    ]


@pytest.mark.parametrize(("host", "url"), [("localhost", "http://"), ("::1", "http://[::1]:")])
def test_other_addresses(servers, host, url):
    if host == "::1" and not _has_ipv6():
        return
    server = servers(http={"host": host})
    assert server.url.startswith(url)
    assert server.http.get("/health").json()["status"] == "ok"


def _has_ipv6():
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def test_the_log_holds_no_text(servers):
    server = servers()
    secret = "the secret word is platypus"
    server.chat(secret)
    server.chat(secret, n=99)
    server.post(CHAT, secret.encode())
    server.daemon.stop()
    log = (server.daemon.sessions / "logs" / "serve.log").read_text()
    assert "platypus" not in log + server.daemon.said()
    assert not list(server.daemon.sessions.rglob("*platypus*"))
    grep = subprocess.run(["grep", "-rl", "platypus", str(server.daemon.sessions)], capture_output=True, text=True)
    assert grep.stdout == ""
