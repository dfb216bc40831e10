"""Errors as OpenAI's clients read them: a status and `{"error": {"message", "type", "param", "code"}}`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from superfluid.protocol.refusals import (
    GenerationFailed,
    OverWindow,
    QueueFull,
    Refusal,
)

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    429: "rate_limit_error",
}


class ApiError(Exception):
    """A request that is refused. `param` is the field at fault, as a path: `messages[1].content`."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        self.code = code
        self.headers = dict(headers or {})

    @property
    def type(self) -> str:
        return _TYPES.get(self.status, "api_error" if self.status >= 500 else "invalid_request_error")

    def envelope(self) -> dict[str, Any]:
        """The body of the reply."""
        return {"error": {"message": str(self), "type": self.type, "param": self.param, "code": self.code}}


def from_refusal(refusal: Refusal, prompt: str) -> ApiError:
    """What the daemon refuses, in OpenAI's words. `prompt` is the field that holds the prompt."""
    match refusal:
        case OverWindow(tokens=tokens, window=window):
            count = f"{'' if refusal.counted else 'at least '}{tokens} tokens"
            return ApiError(
                f"{prompt}: this model's context holds {window} tokens, reply included, and the prompt has {count}",
                param=prompt,
                code="context_length_exceeded",
            )
        case QueueFull(retry_after=seconds):
            headers = {"retry-after": str(seconds)}
            return ApiError(_text(refusal), status=429, code=refusal.code, headers=headers)
        case GenerationFailed():
            return ApiError(_text(refusal), status=500, code=refusal.code)
    # A refusal that has no status of its own is about what the client put into its prompt.
    param = prompt if refusal.status == 400 else None
    return ApiError(_text(refusal), status=refusal.status, param=param, code=refusal.code)


def _text(refusal: Refusal) -> str:
    return str(refusal).removeprefix("protocol: ")
