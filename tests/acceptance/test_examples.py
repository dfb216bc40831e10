"""The document's examples, run as printed: model, address and token file aside."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping

import pytest

from tests.acceptance.conftest import SOURCES, not_run
from tests.acceptance.examples import BROWSER, CURL, PYTHON, adapted
from tests.model import tool_templates
from tests.support import scripted
from tests.support.daemon import DEADLINE
from tests.support.scripted import Result
from tests.web.server import ORIGIN, Web

CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
DIFF = "-x = 1\n+x = eval(input())\n"
REPLIES: Mapping[str | Result, scripted.Reply] = {
    "Name three rivers.": "The Nile, the Danube and the Rhine.",
    DIFF: "<think>\nHm, eval.\n</think>\n\nLooks risky.",
    "Focus on security.": "Never call eval on input.",
    "Is it raining in Paris?": f"<think>\nI should look.\n</think>\n\nLet me look.\n{CALL}",
    Result("get_weather", "12 °C, rain"): "Yes, it rains in Paris.",
}


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    """A daemon whose model has a reply to each question of the document."""
    directory = tmp_path_factory.mktemp("scene")
    web = Web(directory, **scripted.write(directory, tool_templates.REASONS, REPLIES))
    yield web
    web.close()


def text_of(web, session):
    bodies = [event["body"] for event in web.read(session)]
    return "".join(body["Generated"]["text"] for body in bodies if "Generated" in body)


def ran(*command, **settings):
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, **settings)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_curl(tmp_path):
    """On a daemon of its own: the document's session is the first one."""
    if shutil.which("curl") is None:
        not_run("the document's curl example: there is no curl here")
    web = Web(tmp_path, **scripted.write(tmp_path, tool_templates.REASONS, REPLIES))
    try:
        said = ran("bash", "-euo", "pipefail", "-c", adapted(CURL, web))
        assert text_of(web, 1) == "The Nile, the Danube and the Rhine."
    finally:
        web.close()
    created, committed, streamed = said.split("\n", 2)
    assert created == '{"Created":{"session":1}}'
    assert json.loads(committed)["Committed"]["event"]["body"]["Message"]["text"] == "Name three rivers."
    frames = streamed.split("\n\n")
    assert all(
        re.match(r'data: \{"committed":\{"event_id":\d+,"epoch":1,"ts_unix_ms":\d+,"body":', f) for f in frames[:-3]
    )
    assert re.fullmatch(r'data: \{"done":\{"tokens_generated":\d+,"finish":1,"warm_prefix":\d+\}\}', frames[-3])
    assert frames[-2:] == ["data: [DONE]", ""]


AS_A_BROWSER = """
const document = { body: { append: (text) => process.stdout.write(text) } };
const { TOKEN } = process.env;
const WebSocket = class extends globalThis.WebSocket {
  constructor(url, protocols) {  // a browser names the page's origin, and a page is closed in the end
    super(url, { protocols, headers: { origin: process.env.ORIGIN } });
    this.addEventListener("message", ({ data }) => {
      const reply = JSON.parse(data);
      if (reply.Generated || reply.Err) setTimeout(() => this.close(), 0);
    });
  }
};
"""


def test_javascript(scene, tmp_path):
    """In node; in a browser: see `test_browser`."""
    node = shutil.which("node")
    flag = ["--experimental-websocket"]
    if node is None or subprocess.run([node, *flag, "-e", ""], capture_output=True).returncode:
        not_run("the document's page script in node: there is none here that knows WebSockets")
    before = set(scene.rpc("List")["Sessions"]["ids"])
    script = tmp_path / "page.mjs"
    script.write_text(AS_A_BROWSER + adapted(BROWSER, scene))
    environment = {**os.environ, "TOKEN": scene.token, "ORIGIN": ORIGIN, "NODE_NO_WARNINGS": "1"}
    said = ran(node, *flag, str(script), env=environment)
    (session,) = set(scene.rpc("List")["Sessions"]["ids"]) - before
    assert said == "The Nile, the Danube and the Rhine.finished 1\n"
    assert text_of(scene, session) == "The Nile, the Danube and the Rhine."


def test_python(scene, tmp_path):
    """The example has `get_weather` from its reader, and finds address and token where it always does."""
    (tmp_path / "diff.patch").write_text(DIFF)
    (tmp_path / "diff-v2.patch").write_text("-x = 1\n+x = int(input())\n")
    script = tmp_path / "example.py"
    script.write_text(f"def get_weather(city):\n    assert city == 'Paris'\n    return '12 °C, rain'\n\n{PYTHON}")
    before = set(scene.rpc("List")["Sessions"]["ids"])
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("SUPERFLUID_")},
        "PYTHONPATH": str(SOURCES),
        "SUPERFLUID_WEB_URL": scene.url,
        "SUPERFLUID_HOME": str(scene.daemon.directory),
    }
    said = ran(sys.executable, "-W", "ignore::ResourceWarning", str(script), env=environment, cwd=tmp_path)
    assert said == (
        "\nHm, eval.\n\n\nLooks risky."  # the stream, reasoning and text
        "Never call eval on input.\nYes, it rains in Paris.\n"
    )
    review, security, fixed, weather = sorted(set(scene.rpc("List")["Sessions"]["ids"]) - before)
    tree = {id: (parent, at) for id, parent, at in scene.rpc("Tree")["Tree"]["nodes"]}
    assert (tree[security], tree[fixed], tree[weather]) == ((review, 3), (review, 2), (None, 0))
    kinds = [next(iter(event["body"])) for event in scene.read(weather)]
    assert kinds.index("ToolUse") < kinds.index("ToolResult")
    assert scene.rpc({"OpenToolCalls": {"session": weather}}) == {"ToolCalls": {"calls": []}}
