"""Replies as Anthropic's clients read them: one message, or its events (spec: streaming-facts, 1.6)."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

from superfluid.protocol.codes import Finish
from superfluid.transports.http.choices import Choice, Teller
from superfluid.transports.http.errors import ApiError, new_request_id
from superfluid.transports.http.frames import frame


class MessageTeller(Teller):
    """`limit` is how many tokens the request allowed."""

    def __init__(self, model: str, limit: int) -> None:
        self._limit = limit
        self._request_id = new_request_id()
        self._head = {
            "id": "msg_" + secrets.token_hex(12),
            "type": "message",
            "role": "assistant",
            "model": model,
        }
        self.headers = {"request-id": self._request_id}

    def whole(self, choices: Sequence[Choice]) -> dict[str, Any]:
        (choice,) = choices
        content = [{"type": "text", "text": choice.text}]
        return {**self._head, "content": content, **self._stop(choice), "usage": message_usage(choice)}

    def opening(self, prompt_tokens: int) -> Sequence[bytes]:
        # What came warm is known at the end only; until then everything counts as read anew.
        begun: dict[str, Any] = {
            **self._head,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": _usage(prompt_tokens, 0, 0),
        }
        return [
            _event("message_start", message=begun),
            _event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        ]

    def piece(self, index: int, text: str) -> bytes:
        return _event("content_block_delta", index=index, delta={"type": "text_delta", "text": text})

    def closing(self, choice: Choice) -> bytes:
        return _event("content_block_stop", index=choice.index)

    def last(self, choices: Sequence[Choice]) -> bytes:
        (choice,) = choices
        end = _event("message_delta", delta=self._stop(choice), usage=message_usage(choice))
        return end + _event("message_stop")

    def failed(self, fault: ApiError) -> bytes:
        return frame(fault.message_envelope(self._request_id), "error")

    def _stop(self, choice: Choice) -> dict[str, Any]:
        return {"stop_reason": self._reason(choice), "stop_sequence": choice.stop}

    def _reason(self, choice: Choice) -> str:
        if choice.stop is not None:
            return "stop_sequence"
        if choice.finish is not Finish.LENGTH:
            return "end_turn"
        return "max_tokens" if choice.completion_tokens >= self._limit else "model_context_window_exceeded"


def message_usage(choice: Choice) -> dict[str, int]:
    """What was read warm is no input: the two make up the prompt."""
    return _usage(choice.prompt_tokens - choice.cached_tokens, choice.completion_tokens, choice.cached_tokens)


def _usage(read: int, drawn: int, warm: int) -> dict[str, int]:
    return {
        "input_tokens": read,
        "output_tokens": drawn,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": warm,
    }


def _event(kind: str, **fields: Any) -> bytes:
    return frame({"type": kind, **fields}, kind)
