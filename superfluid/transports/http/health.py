"""GET /health and /healthz: whether requests are taken, and what was done so far (spec: streaming-facts, 1.8)."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from superfluid.daemon.use_cases import UseCases
from superfluid.transports.http.traffic import Traffic


class Health:
    """200 while requests are taken, 503 while the daemon drains; the same body either way."""

    def __init__(self, cases: UseCases, traffic: Traffic) -> None:
        self._cases = cases
        self._traffic = traffic

    async def tell(self, _: Request) -> Response:
        closing = self._cases.generating.closing
        return JSONResponse(
            {"status": "unavailable" if closing else "ok", **self._numbers()}, 503 if closing else 200
        )

    def _numbers(self) -> dict[str, Any]:
        watching, traffic = self._cases.watching, self._traffic
        done = watching.room.metrics
        return {
            "model": watching.model,
            "uptime_ms": watching.uptime_ms(),
            "queued": sum(watching.room.schedule.queue_by_class()),
            "running": len(watching.room.schedule.running),
            "steps": done.ticks,
            "requests_started": traffic.started,
            "requests_ok": traffic.ok,
            "requests_failed": traffic.failed,
            "requests_cancelled": traffic.cancelled,
            "prompt_tokens": traffic.prompt_tokens,
            "generated_tokens": traffic.generated_tokens,
            "prefix_cached_tokens": traffic.prefix_cached_tokens,
            "sessions": len(self._cases.feeds.ids()),
            "session_turns": done.session_turns,
            "session_cached_tokens": done.session_cached_tokens,
            "session_ingested_tokens": done.ingested_tokens,
            "session_warm_turns": done.warm_turns,
            "session_warmed_tokens": done.warmed_tokens,
            "session_flash_hits": done.flash_hits,
            "session_ready_exits": done.ready_exits,
        }
