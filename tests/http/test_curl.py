"""Every command of the documentation of streaming sessions, as printed, with curl itself."""

import json
import shutil
import subprocess

import pytest

from tests.http.server import Server, eventually, fake
from tests.support.daemon import DEADLINE

KEY = "LSK-documented"
PRINTED = "http://127.0.0.1:8080"
AUTH = '-H "Authorization: Bearer $LAYERSCALE_LICENSE_KEY"'

CREATE = rf"""
curl -X POST http://127.0.0.1:8080/v1/sessions \
  {AUTH}
"""
CREATE_NAMED = rf"""
curl -X POST http://127.0.0.1:8080/v1/sessions \
  {AUTH} \
  -H "Content-Type: application/json" \
  -d '{{"id": "ticker-feed", "window": 8192, "pre_decode": true}}'
"""
LIST = f"curl http://127.0.0.1:8080/v1/sessions {AUTH}"
SHOW = f"curl http://127.0.0.1:8080/v1/sessions/ticker-feed {AUTH}"
DELETE = f"curl -X DELETE http://127.0.0.1:8080/v1/sessions/ticker-feed {AUTH}"
TURN = rf"""
curl http://127.0.0.1:8080/v1/chat/completions \
  {AUTH} \
  -H "Content-Type: application/json" \
  -H "x-layerscale-session-id: ticker-feed" \
  -d '{{
    "messages": [{{"role": "user", "content": "Summarise the feed so far."}}],
    "max_tokens": 200
  }}'
"""
PUSH = rf"""
curl -X POST http://127.0.0.1:8080/v1/sessions/ticker-feed/push \
  {AUTH} \
  -H "Content-Type: application/json" \
  -d '{{"data": ["AAPL 231.10 +0.4%", "MSFT 415.22 -0.1%"]}}'
"""
GENERATE = rf"""
curl -X POST http://127.0.0.1:8080/v1/sessions/ticker-feed/generate \
  {AUTH} \
  -H "Content-Type: application/json" \
  -d '{{"prompt": "Which symbol moved most?", "max_tokens": 32}}'
"""
REGISTER = rf"""
curl -X POST http://127.0.0.1:8080/v1/sessions/ticker-feed/flash \
  {AUTH} \
  -H "Content-Type: application/json" \
  -d '{{"query": "Which symbol moved most?", "max_tokens": 16}}'
"""
LIST_FLASH = rf"""
curl http://127.0.0.1:8080/v1/sessions/ticker-feed/flash \
  {AUTH}
"""
REMOVE_FLASH = rf"""
curl -X DELETE http://127.0.0.1:8080/v1/sessions/ticker-feed/flash/1 \
  {AUTH}
"""
EVENTS = rf"""
curl -N http://127.0.0.1:8080/v1/sessions/ticker-feed/events \
  {AUTH}
"""

SESSION = {
    "id": "ticker-feed",
    "object": "session",
    "tokens": 0,
    "kv_tokens": 0,
    "busy": False,
    "turns": 0,
    "data_end": 0,
    "data_version": 0,
    "pending": 0,
    "pre_decode": True,
    "ready": False,
    "evicted": 0,
    "window": 8192,
}


@pytest.fixture(scope="module")
def documented(tmp_path_factory):
    directory = tmp_path_factory.mktemp("documented")
    server = Server(directory, {"api_key": KEY}, worker_argv=fake(), max_context=16384)
    yield server
    server.close()


@pytest.fixture(scope="module")
def shell(documented):
    """Start what the documentation prints, on this server."""
    assert shutil.which("curl"), "the documentation speaks curl"

    def start(command):
        return subprocess.Popen(
            ["sh", "-c", command.replace(PRINTED, documented.url).replace("curl ", "exec curl -sS ", 1)],
            env={"LAYERSCALE_LICENSE_KEY": KEY, "PATH": "/usr/bin:/bin"},
            stdout=subprocess.PIPE,
            text=True,
        )

    return start


@pytest.fixture(scope="module")
def curl(shell):
    def run(command):
        process = shell(command)
        said, _ = process.communicate(timeout=DEADLINE)
        assert process.returncode == 0
        return json.loads(said)

    return run


def test_the_documentation(documented, curl, shell):
    assert curl(CREATE)["id"].startswith("sess_")
    made = curl(CREATE_NAMED)
    assert {name: made[name] for name in SESSION} == SESSION
    assert set(made) - set(SESSION) == {"created", "last_used", "superfluid"}
    assert [session["id"] for session in curl(LIST)["data"]][1:] == ["ticker-feed"]
    assert curl(SHOW)["id"] == "ticker-feed"
    with shell(EVENTS) as events:
        assert events.stdout.readline() == "event: connected\n"
        acknowledged = curl(PUSH)
        assert acknowledged == {
            "pushed": 2,
            "dropped": 0,
            "pending": 2,
            "pending_bytes": 36,
            "total_pushed": 2,
            "total_dropped": 0,
            "data_version": 0,
        }
        lines = iter(events.stdout.readline, "")
        assert next(line for line in lines if line.startswith("event")) == "event: data_updated\n"
        registered = curl(REGISTER)
        assert (registered["id"], registered["object"]) == (1, "session.flash_query")
        assert next(line for line in lines if line.startswith("event")) == "event: flash_ready\n"
        assert json.loads(next(lines).removeprefix("data: "))["query"] == "Which symbol moved most?"
        eventually(lambda: curl(LIST_FLASH)["data"][0]["fresh"])
        hit = curl(GENERATE)
        (entry,) = curl(LIST_FLASH)["data"]
        assert (hit["flash"], hit["text"], hit["data_version"]) == (True, entry["value"], 1)
        assert curl(REMOVE_FLASH) == {"id": 1, "object": "session.flash_query", "deleted": True, "remaining": 0}
        answer = curl(GENERATE)
        assert answer["object"] == "session.generation"
        assert answer["usage"]["total_tokens"] == answer["usage"]["prompt_tokens"] + 32
        turn = curl(TURN)
        assert turn["usage"]["completion_tokens"] == 200
        assert turn["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
        assert curl(DELETE) == {"id": "ticker-feed", "object": "session", "deleted": True}
        assert events.wait(DEADLINE) == 0
    gone = curl(SHOW)
    assert gone["error"]["message"] == "no such session 'ticker-feed'"
