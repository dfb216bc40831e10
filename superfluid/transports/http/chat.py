"""POST /v1/chat/completions: a conversation in, OpenAI's chat reply or its chunks out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from superfluid.daemon.config import HttpConfig
from superfluid.daemon.conversing import Ask, Turn
from superfluid.protocol.codes import Role
from superfluid.transports.http import sampling
from superfluid.transports.http.choices import Choice, Order
from superfluid.transports.http.chunks import OpenAiForm
from superfluid.transports.http.fields import Fields, missing, unsupported, wrong

_ROLES: Mapping[str, Role] = {
    "system": Role.SYSTEM,
    "developer": Role.SYSTEM,
    "user": Role.USER,
    "assistant": Role.ASSISTANT,
}
_TOOLS = "tools"
TOOLS: dict[str, tuple[str, Callable[[object], bool]]] = {"tools": (_TOOLS, sampling.filled)}
_REFUSED: dict[str, tuple[str, Callable[[object], bool]]] = {
    **TOOLS,
    "tool_choice": (_TOOLS, lambda value: value not in ("none", "auto")),
    "functions": (_TOOLS, sampling.filled),
    "function_call": (_TOOLS, lambda value: value not in ("none", "auto")),
    "logprobs": ("log probabilities", sampling.switched_on),
    "top_logprobs": ("log probabilities", lambda value: value != 0),
    "audio": ("audio", sampling.anything),
    "modalities": ("other modalities than text", lambda value: value != ["text"]),
    "web_search_options": ("web search", sampling.anything),
    **sampling.STRUCTURED_FIELDS,
}


class Chat(OpenAiForm):
    """OpenAI's chat form."""

    prompt_field = "messages"
    id_prefix = "chatcmpl-"
    whole_object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def parse(self, fields: Fields, config: HttpConfig, vocabulary: int, qos: int) -> Order[Ask]:
        sampling.refuse(fields, _REFUSED)
        wanted = sampling.wanted(fields, config, vocabulary)
        fields.text("model")
        fields.object("chat_template_kwargs")
        told = turns(fields)
        limits = [fields.whole(name, 1) for name in ("max_completion_tokens", "max_tokens")]
        asks = tuple(
            Ask(
                params=wanted.choice(place),
                turns=told,
                max_tokens=limits[0] if limits[0] is not None else limits[1],
                stops=wanted.stops,
                qos=qos,
                options=wanted.options,
            )
            for place in range(wanted.choices)
        )
        return Order(asks, prompts=1, stream=wanted.stream, include_usage=wanted.include_usage)

    def whole(self, choice: Choice) -> dict[str, Any]:
        message = {"role": "assistant", "content": choice.text, "refusal": None}
        return {"message": message, "logprobs": None}

    def opening(self) -> dict[str, Any] | None:
        return {"delta": {"role": "assistant", "content": ""}, "logprobs": None}

    def piece(self, text: str) -> dict[str, Any]:
        return {"delta": {"content": text}, "logprobs": None}

    def closing(self) -> dict[str, Any]:
        return {"delta": {}, "logprobs": None}


def turns(fields: Fields) -> tuple[Turn, ...]:
    """The conversation in `messages`. Raises ApiError."""
    messages = fields.array("messages")
    if messages is None:
        raise missing("messages", "an array of messages")
    if not messages:
        raise wrong("messages", "at least one message", messages)
    return tuple(_turn(message, f"messages[{place}]") for place, message in enumerate(messages))


def _turn(message: Any, path: str) -> Turn:
    if not isinstance(message, dict):
        raise wrong(path, "an object with role and content", message)
    fields = Fields(message, path)
    role = fields.text("role")
    if role is None:
        raise missing(f"{path}.role", f"one of {', '.join(_ROLES)}")
    if role in ("tool", "function"):
        raise unsupported(f"{path}.role", _TOOLS)
    if role not in _ROLES:
        raise wrong(f"{path}.role", f"one of {', '.join(_ROLES)}", role)
    for name in ("tool_calls", "function_call"):
        if fields.raw(name) is not None and sampling.filled(fields.raw(name)):
            raise unsupported(fields.param(name), _TOOLS)
    return Turn(_ROLES[role], _content(fields.raw("content"), f"{path}.content"))


def _content(value: Any, path: str) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(_part(part, f"{path}[{place}]") for place, part in enumerate(value))
    raise wrong(path, "a string or an array of text parts", value)


def _part(part: Any, path: str) -> str:
    if not isinstance(part, dict):
        raise wrong(path, "a text part, which is an object", part)
    fields = Fields(part, path)
    kind = fields.text("type")
    if kind not in (None, "text"):
        raise unsupported(f"{path}.type", f"parts other than text, such as {kind[:20]!a},")
    text = fields.text("text")
    if text is None:
        raise missing(f"{path}.text", "a string")
    return text
