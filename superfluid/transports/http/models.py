"""GET /v1/models: the one model that this daemon serves (spec: streaming-facts, 1.7)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from superfluid.daemon.served import ServedModel
from superfluid.transports.http.errors import ApiError

OWNER = "superfluid"


class Models:
    """`created` is unix seconds."""

    def __init__(self, model: ServedModel, created: int) -> None:
        self._model = model
        self._created = created

    async def all(self, _: Request) -> Response:
        entry = self._entry()
        ends = {"first_id": entry["id"], "last_id": entry["id"]}
        return JSONResponse({"object": "list", "data": [entry], "has_more": False, **ends})

    async def one(self, request: Request) -> Response:
        if request.path_params["model"].casefold() != self._model.name.casefold():
            raise ApiError("model: this server does not serve it", status=404, param="model", code="model_not_found")
        return JSONResponse(self._entry())

    def _entry(self) -> dict[str, Any]:
        """As OpenAI's, vLLM's and Anthropic's clients want it."""
        name, window = self._model.name, self._model.window
        return {
            "id": name,
            "object": "model",
            "created": self._created,
            "owned_by": OWNER,
            "max_model_len": window,
            "type": "model",
            "display_name": name,
            "created_at": datetime.fromtimestamp(self._created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "max_input_tokens": window - 1,
            "max_tokens": window - 1,
            "lifecycle": "active",
            "capabilities": None,
            "deprecated_at": None,
            "retires_at": None,
            "line": None,
        }
