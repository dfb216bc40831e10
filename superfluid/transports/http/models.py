"""GET /v1/models: the one model that this daemon serves."""

from __future__ import annotations

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
        return JSONResponse({"object": "list", "data": [self._entry()]})

    async def one(self, request: Request) -> Response:
        if request.path_params["model"] != self._model.name:
            raise ApiError("model: this server does not serve it", status=404, param="model", code="model_not_found")
        return JSONResponse(self._entry())

    def _entry(self) -> dict[str, Any]:
        return {
            "id": self._model.name,
            "object": "model",
            "created": self._created,
            "owned_by": OWNER,
            "max_model_len": self._model.window,
        }
