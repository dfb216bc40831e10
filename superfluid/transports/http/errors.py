"""Errors as clients read them: a status, and an envelope in the dialect of the path.

OpenAI's clients read `{"error": {"message", "type", "param", "code"}}`; Anthropic's, on the routes under
`/v1/messages`, `{"type": "error", "error": {"type", "message"}, "request_id"}` (spec: streaming-facts, 1.1).
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from starlette.responses import JSONResponse

from superfluid.protocol.refusals import (
    BadSettings,
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

    def saying(self, message: str) -> ApiError:
        """The same in other words."""
        return ApiError(message, status=self.status, param=self.param, code=self.code, headers=self.headers)

    @property
    def type(self) -> str:
        return _TYPES.get(self.status, "api_error" if self.status >= 500 else "invalid_request_error")

    def envelope(self) -> dict[str, Any]:
        """The body of the reply, as OpenAI's clients read it."""
        return {"error": {"message": str(self), "type": self.type, "param": self.param, "code": self.code}}

    def message_envelope(self, request_id: str) -> dict[str, Any]:
        """The body of the reply, as Anthropic's clients read it."""
        return {"type": "error", "error": {"type": self.type, "message": str(self)}, "request_id": request_id}


MESSAGES = "/v1/messages"
"""The path at and under which Anthropic's dialect is spoken."""


def new_request_id() -> str:
    return "req_" + secrets.token_hex(12)


def id_header(path: str) -> str:
    """The header by which the dialect of a path names a request."""
    return "request-id" if _is_messages(path) else "x-request-id"


def refusal(fault: ApiError, path: str) -> JSONResponse:
    """The reply to a request that is refused, in the dialect of its path."""
    request_id = new_request_id()
    headers = {**fault.headers, id_header(path): request_id}
    content = fault.message_envelope(request_id) if _is_messages(path) else fault.envelope()
    return JSONResponse(content, fault.status, headers=headers)


def spelled(status: int, message: str, path: str) -> JSONResponse:
    """The reply to what is no request at all; see `http11.Spelling`."""
    return refusal(ApiError(message, status=status), path)


def _is_messages(path: str) -> bool:
    return path == MESSAGES or path.startswith(MESSAGES + "/")


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
        case BadSettings():
            return ApiError(f"chat_template_kwargs: {refusal}", param="chat_template_kwargs", code=refusal.code)
        case GenerationFailed():
            return ApiError(_text(refusal), status=500, code=refusal.code)
    # A refusal that has no status of its own is about what the client put into its prompt.
    param = prompt if refusal.status == 400 else None
    return ApiError(_text(refusal), status=refusal.status, param=param, code=refusal.code)


def _text(refusal: Refusal) -> str:
    return str(refusal).removeprefix("protocol: ")
