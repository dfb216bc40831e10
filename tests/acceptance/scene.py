"""The model of these tests: reasoning, tool calls and fill-in-the-middle, with replies written beforehand."""

from __future__ import annotations

import atexit
import functools
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from tests.model import tool_templates
from tests.support import scripted
from tests.support.scripted import MARKERS, Result

FIM = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")

WEATHER = json.dumps(
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Current weather",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
)
TOOLS = [
    WEATHER,
    '{"name": "bare", "description": "d", "parameters": {"type": "object"}}',
    '{"name": "anthropic", "description": "d", "input_schema": {"type": "object"}}',
]
"""one in each form that AppendSystem takes"""


def call(name: str, arguments: str = "{}") -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


BERN = call("get_weather", json.dumps({"city": "Bern"}))

REPLIES: dict[str | Result, scripted.Reply] = {
    "Name three rivers.": "The Nile, the Danube and the Rhine.",
    "And two lakes?": "<think>\nLakes.\n</think>\n\nLake Como, Lake Garda.",
    "Is it raining?": f"<think>\nI should look.\n</think>\n\nLet me look.\n{BERN}",
    Result("get_weather", "rain"): "<think>\nIt is.\n</think>\n\nYes, it rains.",
    "Twice?": f"{call('a')}\n{call('b')}",
    "Say it badly.": '<tool_call>\n{"name": 7}\n</tool_call> so it is 42.',
    "Break off.": '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Ber',
}
"""what has no reply is answered with noise that does not end"""


def model(directory: Path, **fake: int) -> dict[str, Any]:
    """Settings of a daemon with this model; `fake` are settings of the fake engine."""
    return scripted.write(directory, tool_templates.REASONS, REPLIES, controls=(*MARKERS, *FIM), **fake)


@functools.cache
def prepared(**fake: int) -> dict[str, Any]:
    """As `model`, in a directory that goes when the tests are over."""
    directory = tempfile.mkdtemp(prefix="sf-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return model(Path(directory), **fake)
