"""What the documentation prints, run as printed: curl, the Python client, and the demo that pulls the plug."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from http.client import HTTPConnection
from pathlib import Path

import pytest
from superfluid_client import Client, Sampling

from tests.pyclient.conftest import SOURCES
from tests.support.daemon import DEADLINE
from tests.web.server import Web

ROOT = Path(__file__).parents[2]
CREATE = '{"Create":{"parent":null,"params":{"temperature":0.7,"top_p":0.95,"min_p":0.0,"top_k":0,"seed":1}}}'
APPEND = '{"AppendMessage":{"session":1,"role":1,"text":"Name three rivers."}}'
ORDER = '{"session":1,"max_tokens":256}'
SCRIPT = f"""
TOKEN=$(cat ~/.superfluid/sessions/web-token)
rpc() {{
  curl -s http://127.0.0.1:8455/web/rpc -H 'content-type: application/json' \\
    -H "authorization: Bearer $TOKEN" -H "x-superfluid-csrf: $TOKEN" -d "$1"; echo
}}
rpc '{CREATE}'
rpc '{APPEND}'
curl -N http://127.0.0.1:8455/web/stream -H 'content-type: application/json' \\
  -H "authorization: Bearer $TOKEN" -H "x-superfluid-csrf: $TOKEN" \\
  -d '{ORDER}'
"""


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """The embedded model."""
    web = Web(tmp_path_factory.mktemp("real"), worker_argv=())
    yield web
    web.close()


@pytest.fixture
def client(real):
    return Client(real.url, token_file=real.token_file, timeout=DEADLINE)


def by_curl(web):
    script = SCRIPT.replace("127.0.0.1:8455", web.url.removeprefix("http://"))
    script = script.replace("~/.superfluid/sessions/web-token", str(web.token_file))
    ran = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=DEADLINE)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.split("\n", 2)


def by_hand(web):
    """The same requests, where there is no curl."""
    replies = []
    headers = {"content-type": "application/json", "authorization": f"Bearer {web.token}", "accept": "*/*"}
    for path, body in [("rpc", CREATE), ("rpc", APPEND), ("stream", ORDER)]:
        connection = HTTPConnection(*web.address, timeout=DEADLINE)
        connection.request("POST", f"/web/{path}", body, {**headers, "x-superfluid-csrf": web.token})
        replies.append(connection.getresponse().read().decode())
        connection.close()
    return replies


def test_the_requests_of_the_document(real):
    created, appended, streamed = (by_curl if shutil.which("curl") else by_hand)(real)
    assert created == '{"Created":{"session":1}}'
    assert list(json.loads(appended)) == ["Committed"]
    frames = streamed.split("\n\n")
    assert frames[0].startswith('data: {"committed":{"event_id":')
    assert re.fullmatch(r'data: \{"done":\{"tokens_generated":\d+,"finish":[12],"warm_prefix":\d+\}\}', frames[-3])
    assert frames[-2:] == ["data: [DONE]", ""]


def test_cut_and_continued_equals_uncut(client):
    def session():
        session = client.session(Sampling(temperature=0.8, seed=11), system="You are terse.")
        session.user("Tell me about rivers.")
        return session

    whole, cut = session(), session()
    expected = whole.generate(40)
    shown = []
    first = cut.generate(13, on_text=shown.append)
    second = cut.generate(27, on_text=shown.append)
    assert first.text + second.text == expected.text == "".join(shown)
    assert (first.finish, first.tokens + second.tokens) == ("length", expected.tokens)


def test_leaving_the_loop_cancels(client):
    session = client.session(Sampling(temperature=0.8, seed=5))
    session.user("Count to a thousand.")
    for chunk in session.stream(400):
        assert chunk.kind == "text"
        break
    assert session.cancel() is False
    finishes = [event.data["finish"] for event in session.events() if event.kind == "Generated"]
    assert finishes[-1] == 4


def test_a_fork_is_warm(client):
    session = client.session(Sampling(temperature=0.7, seed=1), system="You are a reviewer.")
    question = session.user("Here is a text. " + "The river flows to the sea. " * 40)
    session.generate(4)
    fork = session.fork_after(question, seed=2)
    fork.user("And in one word?")
    reply = fork.generate(4)
    assert reply.tokens > 0
    assert reply.warm_prefix > 200
    assert client.get(fork.id).messages()[1] == session.messages()[1]


def test_the_plug_is_pulled_and_the_reply_goes_on(real, tmp_path):
    program = tmp_path / "superfluid"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m superfluid_cli "$@"\n')
    program.chmod(0o755)
    model = real.rpc("Status")["StatusReport"]["model_path"]
    began = time.monotonic()
    done = subprocess.run(
        [
            sys.executable,
            str(SOURCES / "examples" / "pull_the_plug.py"),
            model,
            *("--superfluid", str(program), "--after", "12", "--max-tokens", "40"),
        ],
        env={
            **os.environ,
            "PYTHONPATH": f"{SOURCES}{os.pathsep}{ROOT}{os.pathsep}{ROOT / 'cli'}",
            "SUPERFLUID_THREADS": "1",
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    assert done.returncode == 0, (done.stderr, time.monotonic() - began)
    kept = re.search(r"--- kept (\d+) characters, drew (\d+) of those shown again; (\d+) tokens more", done.stdout)
    assert kept is not None
    assert int(kept[3]) > 0


def test_the_page_says_what_the_document_says():
    """Each request of the document's page is in ours, and the reply's fields are read as there."""
    page = (ROOT / "clients" / "browser" / "browser.html").read_text()
    for words in [
        '["superfluid.v1", `superfluid.token.${',
        "const send = (request) => ws.send(JSON.stringify(request));",
        "send({ Create: { parent: null, params:",
        "send({ AppendMessage: { session, role: 1, text:",
        "send({ Generate: { session, max_tokens: 256 } });",
        "reply.Delta?.event.body.Generated",
        "reply.Generated.finish",
    ]:
        assert words in page
