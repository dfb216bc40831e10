"""Structured blocks: what of their payload the model gets to see (spec: wire-facts, 8.6).

A payload is kept as it came. Its projection is made of the fields that are there: a payload that is no JSON object,
or lacks them, shows less or nothing, and is never an error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from superfluid.protocol.codes import BlockKind, Role
from superfluid.protocol.records import Block, Span
from superfluid.protocol.refusals import BadBlockKind, BadRole
from superfluid.protocol.wire import U64_MAX

MOST_BYTES = 16 * 1024
"""of a diff, or of an artifact's content, that reach the model"""
TRUNCATED = "\n[truncated]"
VISIBILITY_VERSION = 2
"""Which set of projections a record was made with; there is one so far."""


def check(role: int, kind: int) -> None:
    """Tool blocks are fine here, unlike tool messages. Raises BadRole, then BadBlockKind."""
    if role not in tuple(Role):
        raise BadRole(role)
    if kind not in tuple(BlockKind):
        raise BadBlockKind(kind)


def project(kind: int, payload: str) -> str:
    """The text to render as a message, "" where nothing of the block reaches the model. Raises BadBlockKind."""
    try:
        projection = _PROJECTIONS[BlockKind(kind)]
    except ValueError:
        raise BadBlockKind(kind) from None
    return projection(_fields(payload))


def block(role: int, kind: int, payload: str, rendered: Span) -> Block:
    """The record; `rendered` is empty where the projection is. Raises BadRole, BadBlockKind."""
    check(role, kind)
    return Block(role, kind, payload, rendered, VISIBILITY_VERSION)


def _fields(payload: str) -> dict[str, Any]:
    try:
        value = json.loads(payload)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _text(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else ""


def _number(fields: dict[str, Any], name: str) -> int:
    value = fields.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= U64_MAX else 0


def _capped(text: str) -> str:
    data = text.encode("utf-8", "replace")
    if len(data) <= MOST_BYTES:
        return text
    return data[:MOST_BYTES].decode("utf-8", "ignore") + TRUNCATED


def _file_diff(fields: dict[str, Any]) -> str:
    path, diff = _text(fields, "path"), _capped(_text(fields, "diff")).removesuffix("\n")
    if not path and not diff:
        return ""
    # a fence inside the diff must not end the block
    longest = max(map(len, re.findall("`{3,}", diff)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}diff\n# {path}\n{diff}\n{fence}"


def _artifact(fields: dict[str, Any]) -> str:
    title, content = _text(fields, "title"), _capped(_text(fields, "content"))
    return f"[artifact: {title}]\n{content}" if title or content else ""


def _citation(fields: dict[str, Any]) -> str:
    source = ", ".join(filter(None, (_text(fields, "title"), _text(fields, "url"))))
    quote = _text(fields, "quote")
    lines = [f"[citation: {source}]"] if source or quote else []
    lines += [f"> {line}" for line in quote.split("\n")] if quote else []
    return "\n".join(lines)


def _diagnostic(fields: dict[str, Any]) -> str:
    severity, message, path = (_text(fields, name) for name in ("severity", "message", "path"))
    if not (severity or message or path):
        return ""
    place = f"{path}:{_number(fields, 'line')}: " if path else ""
    return f"[{severity or 'diagnostic'}] {place}{message}"


def _workspace_ref(fields: dict[str, Any]) -> str:
    path = _text(fields, "path")
    return f"@{path}" if path else ""


def _nothing(_: dict[str, Any]) -> str:
    return ""


_PROJECTIONS: dict[BlockKind, Callable[[dict[str, Any]], str]] = {
    BlockKind.FILE_DIFF: _file_diff,
    BlockKind.ARTIFACT: _artifact,
    BlockKind.CITATION: _citation,
    BlockKind.PROGRESS: _nothing,
    BlockKind.DIAGNOSTIC: _diagnostic,
    BlockKind.WORKSPACE_REF: _workspace_ref,
    # images come with AppendImage, which brings their tokens
    BlockKind.IMAGE: _nothing,
}
