"""Replies as OpenAI's clients read them: choices in one piece, or chunks and `[DONE]`."""

from __future__ import annotations

import secrets
import time
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from superfluid.daemon.replies.conversing import Ask
from superfluid.daemon.use_cases import UseCases
from superfluid.transports.http.choices import Choice, Form, Order, Sending, Teller, converse
from superfluid.transports.http.errors import ApiError
from superfluid.transports.http.frames import DONE, frame
from superfluid.transports.http.naming import Target


class OpenAiForm(Form[Ask]):
    """What OpenAI's two forms have in common."""

    id_prefix: ClassVar[str]
    whole_object: ClassVar[str]
    chunk_object: ClassVar[str]

    def teller(self, order: Order[Ask], model: str, target: Target | None) -> Teller:
        return _Chunks(self, order, model)

    async def answer(self, cases: UseCases, index: int, ask: Ask, sending: Sending, target: Target | None) -> None:
        await converse(cases, index, ask, sending, target)

    @abstractmethod
    def whole(self, choice: Choice) -> dict[str, Any]:
        """What a finished choice holds beside its index and its finish reason."""

    @abstractmethod
    def opening(self) -> dict[str, Any] | None:
        """What the first chunk of a choice holds; None where there is none."""

    @abstractmethod
    def piece(self, text: str) -> dict[str, Any]: ...

    @abstractmethod
    def closing(self) -> dict[str, Any]:
        """What the chunk with the finish reason holds."""


class _Chunks(Teller):
    def __init__(self, form: OpenAiForm, order: Order[Ask], model: str) -> None:
        self._form = form
        self._order = order
        identity = form.id_prefix + secrets.token_hex(12)
        self._head = {"id": identity, "created": int(time.time()), "model": model}
        self.headers = {"x-request-id": identity}

    def whole(self, choices: Sequence[Choice]) -> dict[str, Any]:
        told = [
            {"index": choice.index, **self._form.whole(choice), "finish_reason": choice.reason} for choice in choices
        ]
        return {
            **self._head,
            "object": self._form.whole_object,
            "choices": told,
            "usage": usage(choices, self._order.prompts),
        }

    def opening(self, prompt_tokens: int) -> Sequence[bytes]:
        opening = self._form.opening()
        return [] if opening is None else [self._chunk(index, opening) for index in range(len(self._order.asks))]

    def piece(self, index: int, text: str) -> bytes:
        return self._chunk(index, self._form.piece(text))

    def closing(self, choice: Choice) -> bytes:
        return self._chunk(choice.index, self._form.closing(), choice.reason)

    def last(self, choices: Sequence[Choice]) -> bytes:
        if not self._order.include_usage:
            return DONE
        return frame({**self._chunk_head(), "choices": [], "usage": usage(choices, self._order.prompts)}) + DONE

    def failed(self, fault: ApiError) -> bytes:
        return frame(fault.envelope()) + DONE

    def _chunk_head(self) -> dict[str, Any]:
        return {**self._head, "object": self._form.chunk_object}

    def _chunk(self, index: int, content: dict[str, Any], reason: str | None = None) -> bytes:
        chunk = {**self._chunk_head(), "choices": [{"index": index, **content, "finish_reason": reason}]}
        if self._order.include_usage:
            chunk["usage"] = None
        return frame(chunk)


def usage(choices: Sequence[Choice], prompts: int) -> dict[str, Any]:
    """OpenAI's usage of all choices, in order; a prompt counts once, however many choices it has."""
    each = len(choices) // prompts
    groups = [choices[start : start + each] for start in range(0, len(choices), each)]
    prompt_tokens = sum(group[0].prompt_tokens for group in groups)
    completion_tokens = sum(choice.completion_tokens for choice in choices)
    cached = sum(min(choice.cached_tokens for choice in group) for group in groups)
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
