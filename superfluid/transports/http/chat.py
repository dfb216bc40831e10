"""POST /v1/chat/completions: a conversation in, OpenAI's chat reply or its chunks out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from superfluid.daemon.config import HttpConfig
from superfluid.daemon.replies.conversing import Ask, Turn
from superfluid.protocol.codes import Role
from superfluid.transports.http import sampling, template
from superfluid.transports.http import turns as sent
from superfluid.transports.http.choices import Choice, Order
from superfluid.transports.http.chunks import OpenAiForm
from superfluid.transports.http.fields import Fields, unsupported, wrong

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
_SAID_OTHERWISE = {"tool_calls": _TOOLS, "function_call": _TOOLS, "audio": "audio", "refusal": "refusals"}
"""What a message may say beside its content. Left out, it would be a turn in which nothing was said."""


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
        settings = template.settings(fields)
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
                settings=settings,
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
    return tuple(_turn(message) for message in sent.messages(fields))


def _turn(message: Fields) -> Turn:
    role = sent.role(message, _ROLES)
    if role in ("tool", "function"):
        raise unsupported(message.param("role"), _TOOLS)
    if role not in _ROLES:
        raise wrong(message.param("role"), f"one of {', '.join(_ROLES)}", role)
    for name, what in _SAID_OTHERWISE.items():
        if message.raw(name) is not None and sampling.filled(message.raw(name)):
            raise unsupported(message.param(name), what)
    content = message.raw("content")
    texts = [] if content is None else sent.texts(content, message.param("content"), "part", {})
    return Turn(_ROLES[role], "".join(texts))
