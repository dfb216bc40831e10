"""POST /v1/messages: Anthropic's form of a conversation (spec: streaming-facts, 1.6)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from superfluid.daemon.config import HttpConfig
from superfluid.daemon.replies.conversing import Ask, Turn
from superfluid.daemon.use_cases import UseCases
from superfluid.protocol.codes import Role
from superfluid.protocol.refusals import OverWindow, Refusal
from superfluid.transports.http import sampling, template
from superfluid.transports.http import turns as sent
from superfluid.transports.http.choices import Form, Order, Sending, Teller, converse
from superfluid.transports.http.errors import ApiError
from superfluid.transports.http.fields import Fields, missing, unsupported, wrong
from superfluid.transports.http.message_events import MessageTeller
from superfluid.transports.http.naming import Target

_ROLES = {"user": Role.USER, "assistant": Role.ASSISTANT}
_TOOLS = "tools"


def _chooses(value: object) -> bool:
    return not (isinstance(value, dict) and value.get("type") in ("auto", "none"))


def _thinks(value: object) -> bool:
    return not (isinstance(value, dict) and value.get("type") == "disabled")


_REFUSED: dict[str, tuple[str, Callable[[object], bool]]] = {
    "tools": (_TOOLS, sampling.filled),
    "tool_choice": (_TOOLS, _chooses),
    "mcp_servers": ("MCP servers", sampling.filled),
    "thinking": ("thinking", _thinks),
    "output_format": (sampling.STRUCTURED, sampling.anything),
}
_PARTS = {
    "image": "images",
    "document": "documents",
    "tool_use": _TOOLS,
    "tool_result": _TOOLS,
    "thinking": "thinking",
    "redacted_thinking": "thinking",
}


class Messages(Form[Ask]):
    """Anthropic's message form."""

    prompt_field = "messages"

    def parse(self, fields: Fields, config: HttpConfig, vocabulary: int, qos: int) -> Order[Ask]:
        turns = conversation(fields)
        limit = fields.whole("max_tokens", 1)
        if limit is None:
            raise missing("max_tokens", "a whole number from 1 up")
        ask = Ask(
            params=sampling.params(fields, config, sampling.LAYERED),
            turns=turns,
            max_tokens=limit,
            stops=sampling.stops(fields, "stop_sequences"),
            qos=qos,
            options=sampling.options(fields, vocabulary),
            settings=settings(fields),
        )
        return Order((ask,), prompts=1, stream=fields.flag("stream"))

    def teller(self, order: Order[Ask], model: str, target: Target | None) -> Teller:
        limit = order.asks[0].max_tokens
        assert limit is not None, "parse refuses requests without"
        return MessageTeller(model, limit)

    async def answer(self, cases: UseCases, index: int, ask: Ask, sending: Sending, target: Target | None) -> None:
        await converse(cases, index, ask, sending, target)

    def refused(self, refusal: Refusal, target: Target | None) -> ApiError:
        return too_long(refusal) if isinstance(refusal, OverWindow) else super().refused(refusal, target)


def too_long(refusal: OverWindow) -> ApiError:
    """In the words by which Anthropic's clients know an overflow."""
    uncounted = "" if refusal.counted else " (at least; it was not counted to its end)"
    message = f"prompt is too long: {refusal.tokens} tokens > {refusal.window - 1} maximum{uncounted}"
    return ApiError(message, param="messages", code="context_length_exceeded")


def settings(fields: Fields) -> Mapping[str, Any]:
    """What is told to the chat template: whether to think, where the request says so."""
    return {} if fields.raw("thinking") is None else template.thinking(False)  # another value is refused


def conversation(fields: Fields) -> tuple[Turn, ...]:
    """The system prompt and the messages, and whatever else makes up a prompt checked. Raises ApiError."""
    sampling.refuse_session_id(fields)
    sampling.refuse(fields, _REFUSED)
    output = fields.object("output_config")
    if output is not None and output.raw("format") is not None:
        raise unsupported("output_config.format", sampling.STRUCTURED)
    fields.text("model")
    fields.object("metadata")
    system = fields.raw("system")
    # Blocks of a system prompt are texts of their own, unlike the parts of a message.
    blocks = [] if system is None else _texts(system, "system")
    turns = [_turn(message) for message in sent.messages(fields)]
    return (Turn(Role.SYSTEM, "\n\n".join(blocks)), *turns) if any(blocks) else tuple(turns)


def _turn(message: Fields) -> Turn:
    role = sent.role(message, _ROLES)
    if role not in _ROLES:
        hint = "; a system prompt goes into the field system" if role == "system" else ""
        raise wrong(message.param("role"), f"one of {', '.join(_ROLES)}{hint}", role)
    content = message.raw("content")
    if content is None:
        raise missing(message.param("content"), "a string or an array of blocks")
    return Turn(_ROLES[role], "".join(_texts(content, message.param("content"))))


def _texts(value: Any, path: str) -> list[str]:
    return sent.texts(value, path, "block", _PARTS)
