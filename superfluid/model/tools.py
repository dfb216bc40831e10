"""Tool declarations of any of the usual shapes, brought into the one that templates expect (spec: wire-facts, 8.5).

That one is OpenAI's: `{"type": "function", "function": {"name", "description", "parameters"}}`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from superfluid.protocol.refusals import BadTool

Tool = dict[str, Any]
"""A declaration in JSON form, normalised."""


def parse_tools(declarations: Sequence[str]) -> tuple[Tool, ...]:
    """Declarations that come as JSON text. Raises `BadTool` for the first that is none, with its index."""
    return tuple(_parsed(index, text) for index, text in enumerate(declarations))


def _parsed(index: int, text: str) -> Tool:
    try:
        value = json.loads(text, parse_constant=_no_constant)
        # a lone surrogate, which JSON can spell, is no text
        text.encode()
        json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise BadTool(index, "it is nested too deep") from None
    except ValueError:
        raise BadTool(index, "it is not JSON") from None
    return _normalised(index, value)


def _normalised(index: int, value: Any) -> Tool:
    if not isinstance(value, Mapping):
        raise BadTool(index, "it is not a JSON object")
    if "type" in value and value["type"] != "function":
        raise BadTool(index, 'its type is not "function"')
    if "function" in value:
        _check(index, value["function"])
        return dict(value)
    bare = {key: part for key, part in value.items() if key != "type"}
    if "input_schema" in bare:
        # Anthropic's shape
        bare = {
            "name": bare.get("name"),
            "description": bare.get("description", ""),
            "parameters": bare["input_schema"],
        }
    _check(index, bare)
    return {"type": "function", "function": bare}


def _check(index: int, function: Any) -> None:
    if not isinstance(function, Mapping):
        raise BadTool(index, "its function is not an object")
    name = function.get("name")
    if not isinstance(name, str) or not name:
        raise BadTool(index, "it has no name")
    if not isinstance(function.get("parameters", {}), Mapping):
        raise BadTool(index, "its parameters are not an object")


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
