"""What a model wrote as a tool call, read with patience (spec: wire-facts, 8.16).

Code fences are stripped, the first JSON object counts (or the first array of objects, which is how Mistral models
call), trailing commas are dropped, what was not closed is closed. Never raises, in time proportional to the text.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

_ARGUMENTS = ("arguments", "parameters", "args", "input")
_DEEPEST = 200
# An unterminated string ends with the text. Possessive, so that a long one is not read again from each of its places.
_TOKEN = re.compile(r'\s++|"(?:[^"\\]++|\\.)*+(?P<closed>"?)\\?|[{}\[\],:]|[^\s{}\[\],:"]++', re.DOTALL)
_SCALAR = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null")
_START = re.compile(r"\{|\[(?=\s*\{)")
_HALF_ESCAPE = re.compile(r"\\u[0-9a-fA-F]{0,3}\Z")
_SURROGATE = re.compile("[\ud800-\udfff]")
_CLOSERS = {"{": "}", "[": "]"}


@dataclass(frozen=True, slots=True)
class ParsedCall:
    """A call. `arguments` is a JSON object as compact text."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class BadCall:
    """Text that is no call. `why` is for people and holds none of it."""

    raw: str
    why: str


class _NoCall(Exception):
    """`str()` says why."""


def parse_calls(raw: str) -> tuple[ParsedCall, ...] | BadCall:
    """The calls in `raw`: one, or those of an array, which count only all together."""
    try:
        value = json.loads(_mended(_unfenced(raw)), strict=False, parse_constant=_no_number, parse_float=_finite)
        calls = value if isinstance(value, list) else [value]
        return tuple(_call(call) for call in calls)
    except _NoCall as error:
        return BadCall(raw, str(error))
    except RecursionError:
        return BadCall(raw, "it is nested too deep")
    except ValueError:
        return BadCall(raw, "it is not JSON")


def parse_arguments(text: str) -> dict[str, Any] | None:
    """The arguments of a call that a client sent back, read with the same patience; None where they are no object."""
    try:
        value = json.loads(_mended(_unfenced(text)), strict=False, parse_constant=_no_number, parse_float=_finite)
    except (_NoCall, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _call(value: Any) -> ParsedCall:
    if isinstance(value, dict) and isinstance(value.get("function"), dict):
        value = value["function"]
    if not isinstance(value, dict):
        raise _NoCall("it is not an object")
    name = value.get("name")
    if not isinstance(name, str) or not name:
        raise _NoCall("it has no name")
    arguments = next((value[key] for key in _ARGUMENTS if key in value), None)
    if isinstance(arguments, str):
        arguments = json.loads(arguments, parse_constant=_no_number, parse_float=_finite)
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, dict):
        raise _NoCall("its arguments are not an object")
    text = json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))
    # escapes can spell half of a character, which no text can hold
    return ParsedCall(_SURROGATE.sub("\ufffd", name), _SURROGATE.sub("\ufffd", text))


def _unfenced(raw: str) -> str:
    """Without the code fence around it, if any. What comes before the first object is not looked at anyway."""
    text = raw.strip()
    return text.removesuffix("```") if text.startswith("```") else text


def _mended(text: str) -> str:
    """The first object or array of objects in `text` as JSON, as far as that can be had."""
    start = _START.search(text)
    if start is None:
        raise _NoCall("there is no JSON object in it")
    return _Mender().mend(text, start.start())


class _Mender:
    """One pass over JSON tokens, which keeps in mind up to where closing the brackets gives something whole."""

    def __init__(self) -> None:
        self._out: list[str] = []
        self._open: list[str] = []
        self._whole = 0
        """so many parts of the output end with a complete value or an opening bracket"""
        self._comma = False
        self._after_colon = False

    def mend(self, text: str, start: int) -> str:
        for match in _TOKEN.finditer(text, start):
            token = match[0]
            if token.isspace():
                continue
            if token in "}]":
                self._close(token)
                if not self._open:
                    return "".join(self._out)
            elif token == ",":
                # a comma is written once something follows it
                self._comma = True
            else:
                self._add(token, match["closed"])
        return "".join([*self._out[: self._whole], *(_CLOSERS[bracket] for bracket in reversed(self._open))])

    def _close(self, bracket: str) -> None:
        if _CLOSERS[self._open.pop()] != bracket:
            raise _NoCall("its brackets do not match")
        self._value(bracket)
        self._comma = False

    def _add(self, token: str, closed: str | None) -> None:
        if self._comma:
            self._out.append(",")
            self._comma = False
        if token == ":":
            self._out.append(token)
            self._after_colon = True
        elif token in "{[":
            self._open.append(token)
            if len(self._open) > _DEEPEST:
                raise _NoCall("it is nested too deep")
            self._value(token)
        elif self._open[-1] == "{" and not self._after_colon:
            self._out.append(token)  # a key
        elif closed == "":
            self._value(_closed(token))
        elif closed or _SCALAR.fullmatch(token):
            self._value(token)
        else:
            self._out.append(token)  # a literal cut short, or no JSON at all

    def _value(self, token: str) -> None:
        self._out.append(token)
        self._whole = len(self._out)
        self._after_colon = False


def _closed(string: str) -> str:
    """A JSON string that ends with the text, ended."""
    body = string
    half = _HALF_ESCAPE.search(body)
    if half is not None and not _escaped(body, half.start()):
        body = body[: half.start()]
    elif body.endswith("\\") and not _escaped(body, len(body) - 1):
        body = body[:-1]
    return body + '"'


def _escaped(text: str, at: int) -> bool:
    """Whether the character there is taken literally: an odd number of backslashes comes right before it."""
    before = text[:at]
    return (len(before) - len(before.rstrip("\\"))) % 2 == 1


def _no_number(_: str) -> None:
    raise ValueError


def _finite(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError
    return number
