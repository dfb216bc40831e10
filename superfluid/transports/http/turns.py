"""Messages and their parts, as the chat dialects have them in common; each keeps its own words for what it lacks."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from superfluid.transports.http.fields import Fields, missing, unsupported, wrong


def messages(fields: Fields) -> Iterator[Fields]:
    """The messages of a body, one after the other. Raises ApiError when it comes to one that is none."""
    found = fields.array("messages")
    if found is None:
        raise missing("messages", "an array of messages")
    if not found:
        raise wrong("messages", "at least one message", found)
    for place, message in enumerate(found):
        path = f"messages[{place}]"
        if not isinstance(message, dict):
            raise wrong(path, "an object with role and content", message)
        yield Fields(message, path)


def role(message: Fields, known: Collection[str]) -> str:
    """The name of a message's role, which need not be one of those known. Raises ApiError where there is none."""
    name = message.text("role")
    if name is None:
        raise missing(message.param("role"), f"one of {', '.join(known)}")
    return name


def texts(value: Any, path: str, called: str, foreign: dict[str, str]) -> list[str]:
    """The texts of a content, a string or an array of parts, which the dialect calls `called`.

    `foreign` names parts of other types that the dialect has. Raises ApiError.
    """
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return [_text(part, f"{path}[{place}]", called, foreign) for place, part in enumerate(value)]
    raise wrong(path, f"a string or an array of text {called}s", value)


def _text(part: Any, path: str, called: str, foreign: dict[str, str]) -> str:
    if not isinstance(part, dict):
        raise wrong(path, f"a text {called}, which is an object", part)
    fields = Fields(part, path)
    kind = fields.text("type")
    if kind not in (None, "text"):
        raise unsupported(f"{path}.type", foreign.get(kind, f"{called}s other than text, such as {kind[:20]!a},"))
    text = fields.text("text")
    if text is None:
        raise missing(f"{path}.text", "a string")
    return text
