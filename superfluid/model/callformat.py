"""How a model's own template writes tool calls, learned when the model is loaded.

A synthetic call is rendered through the template and what comes out is recognised:

- "hermes": `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, a block a call (Hermes, Qwen);
- "llama3": `{"name": ..., "parameters": {...}}` as the whole reply, with or without `<|python_tag|>` before it;
- "mistral": `[TOOL_CALLS]` and an array of `{"name": ..., "arguments": {...}}`, up to the end of the turn.

Everything else refuses tools, with what was found.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from superfluid.model.template import ChatTemplate, TemplateError

_NAME = "probe_tool"
_ARGUMENTS = {"probe_key": "probe value"}
_USER = "probe question"
# Mistral's templates insist on nine letters and digits
_IDS = ("callprob1", "callprob2")
_TOOL = {
    "type": "function",
    "function": {
        "name": _NAME,
        "description": "probe description",
        "parameters": {"type": "object", "properties": {"probe_key": {"type": "string", "description": "probe"}}},
    },
}
_SHOWN = 160


@dataclass(frozen=True, slots=True)
class CallFormat:
    """One of the formats that are read here, as this template writes it."""

    name: str
    """hermes, llama3 or mistral"""
    opening: str
    """marker before a call"""
    closing: str | None
    """marker after it; None where the call goes on to the end of the turn"""
    bare: bool = False
    """a reply that begins with the JSON of a call is a call without its marker too; see `call_begins`"""
    as_text: bool = False
    """the template wants a call's arguments as JSON text, not as an object"""
    parallel: bool = True
    """an assistant message may hold several calls"""


@dataclass(frozen=True, slots=True)
class NoCalls:
    """The template gives no format. `found` says what it does instead, as the end of "this model cannot: ..."."""

    found: str


def learn(template: ChatTemplate) -> CallFormat | NoCalls:
    """The format of `template`. Never raises."""
    if not _takes_tools(template):
        return NoCalls("its chat template has no place for tools in the first message")
    refused: TemplateError | None = None
    left_out = False
    unknown: str | None = None
    for as_text in (False, True):
        for content in ("", None):
            try:
                reply = _reply(template, 1, content=content, as_text=as_text)
            except TemplateError as error:
                refused = refused or error
                continue
            if (found := _recognised(reply)) is not None:
                return replace(found, as_text=as_text, parallel=_parallel(template, content, as_text=as_text))
            left_out = True
            if _NAME in reply:
                unknown = unknown or reply
    if unknown is not None:
        return NoCalls(f"its chat template writes tool calls in a format that is not known here: {_excerpt(unknown)}")
    if refused is not None and not left_out:
        return NoCalls(f"its chat template refuses an assistant message with a tool call: {refused}")
    return NoCalls("its chat template leaves out the tool calls of an assistant message")


def call_begins(text: str) -> bool | None:
    """Whether a reply that begins so is the JSON of a call ("llama3" without marker); None where it may become one.

    Only a name with "parameters" (or "arguments") right behind it counts, so that other JSON stays text.
    """
    if len(text) > _MOST_HELD:
        return False
    if _BARE.match(text) is not None:
        return True
    return None if _BARE_SO_FAR.fullmatch(text) is not None else False


def _takes_tools(template: ChatTemplate) -> bool:
    user = {"role": "user", "content": _USER}
    for messages in ([user], [{"role": "system", "content": "probe system"}, user]):
        try:
            if template.render(messages, now_ms=0, tools=[_TOOL]) != template.render(messages, now_ms=0):
                return True
        except TemplateError:
            pass
    return False


def _reply(template: ChatTemplate, calls: int, *, content: str | None, as_text: bool) -> str:
    """What the template writes after the user's text, for a message with so many calls."""
    arguments: Any = json.dumps(_ARGUMENTS) if as_text else _ARGUMENTS
    messages: list[Mapping[str, Any]] = [
        {"role": "user", "content": _USER},
        {
            "role": "assistant",
            "content": content,
            "tool_calls": [
                {"id": _IDS[index], "type": "function", "function": {"name": _NAME, "arguments": arguments}}
                for index in range(calls)
            ],
        },
    ]
    try:
        text = template.render(messages, now_ms=0)
    except TemplateError:
        text = template.render(messages, now_ms=0, tools=[_TOOL])
    return text[text.rfind(_USER) + len(_USER) :] if _USER in text else text


def _parallel(template: ChatTemplate, content: str | None, *, as_text: bool) -> bool:
    try:
        return _reply(template, 2, content=content, as_text=as_text).count(_NAME) == 2
    except TemplateError:
        return False


def _recognised(reply: str) -> CallFormat | None:
    for match in re.finditer(r"<tool_call>(.*?)</tool_call>", reply, re.DOTALL):
        if _is_call(_json_at(match[1], 0), "arguments"):
            return CallFormat("hermes", "<tool_call>", "</tool_call>")
    at = reply.find("[TOOL_CALLS]")
    if at >= 0:
        calls = _json_at(reply, at + len("[TOOL_CALLS]"))
        if isinstance(calls, list) and calls and _is_call(calls[0], "arguments"):
            return CallFormat("mistral", "[TOOL_CALLS]", None)
    brace = reply.find("{")
    # in the middle of a sentence or of other markers it is somebody else's format
    if brace >= 0 and _is_call(_json_at(reply, brace), "parameters") and _whole_reply(reply[:brace]):
        return CallFormat("llama3", "<|python_tag|>", None, bare=True)
    return None


def _whole_reply(before: str) -> bool:
    """Whether nothing but a header ends before the JSON of a call: a line end, a control token, or the tag."""
    return not before or before.endswith((">", "\n"))


def _json_at(text: str, at: int) -> Any:
    try:
        return json.JSONDecoder().raw_decode(text[at:].lstrip())[0]
    except (ValueError, RecursionError):
        return None


def _is_call(value: Any, key: str) -> bool:
    return isinstance(value, dict) and value.get("name") == _NAME and value.get(key) == _ARGUMENTS


def _excerpt(reply: str) -> str:
    text = " ".join(reply.split())
    at = max(0, text.find(_NAME) - _SHOWN // 2)
    return repr(text[at : at + _SHOWN])


# ---- the beginning of a call without a marker

_MOST_HELD = 512
_NAME_ATOM = r"[\w.:/-]{1,128}+"


def _atoms(key: str) -> Iterator[str]:
    blank = r"\s*+"
    yield from (r"\{", blank, *'"name"', blank, ":", blank, '"', _NAME_ATOM, '"', blank, ",", blank, *f'"{key}"')


def _beginnings(key: str) -> str:
    """A pattern for everything that `_atoms` may begin with."""
    pattern = ""
    for atom in reversed(list(_atoms(key))):
        pattern = f"(?:{atom}{pattern})?+"
    return pattern


_KEYS = ("parameters", "arguments")
_BARE = re.compile("|".join("".join(_atoms(key)) for key in _KEYS))
_BARE_SO_FAR = re.compile("|".join(f"(?:{_beginnings(key)})" for key in _KEYS))
