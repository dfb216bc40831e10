"""Daemons whose model says what a script says, with reasoning and Hermes calls: one for most tests, or one's own."""

import json

import pytest

from tests.model import tool_templates
from tests.support import scripted
from tests.support.closing import closing_all
from tests.support.daemon import Daemon
from tests.support.scripted import Result

DEEP = {"city": "Zürich", "deep": [{"q": 'say "hi"\n\\'}, None, -2.5], "<": "🎉 & <b>"}
WEATHER = json.dumps({"name": "get_weather", "arguments": DEEP}, ensure_ascii=False)

REPLIES: dict[str | Result, scripted.Reply] = {
    "Is it raining?": f"<think>\nI should look.\n</think>\n\nLet me look.\n<tool_call>\n{WEATHER}\n</tool_call>",
    Result("get_weather", "12 °C, rain"): "<think>\nIt is.\n</think>\n\nYes, it rains.",
    "Twice?": '<tool_call>{"name": "a", "arguments": {}}</tool_call>\n<tool_call>{"name": "b"}</tool_call>',
    Result("b", "two"): "Both done.",
    "Say it badly.": 'Well: <tool_call>\n{"name": 7}\n</tool_call> so it is 42.',
    "Break off.": '<tool_call>{"name": "get_weather", "arguments": {"city": "Ber',
    "Break.": "<tool_call>nothing that is a call",
    "Think.": "<think>hm</think>\n\nSo: a <tool_call",
}


@pytest.fixture(scope="session")
def hermes(tmp_path_factory):
    """Markers are control tokens."""
    directory = tmp_path_factory.mktemp("hermes")
    with Daemon(directory, **scripted.write(directory, tool_templates.REASONS, REPLIES)) as daemon:
        yield daemon


@pytest.fixture
def client(hermes):
    with hermes.client() as client:
        yield client


@pytest.fixture
def daemons(tmp_path):
    """A maker of daemons with the same model; what a test leaves running is killed."""
    model = scripted.write(tmp_path, tool_templates.REASONS, REPLIES)
    with closing_all(lambda **settings: Daemon(tmp_path, **{**model, **settings})) as make:
        yield make
