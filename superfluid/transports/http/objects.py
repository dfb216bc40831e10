"""Sessions, flash queries and what happens to them, as JSON (spec: streaming-facts, 2, 5 and 6).

What has no value yet is left out. Numbers of single precision are written as short as they can be.
"""

from __future__ import annotations

from typing import Any

from superfluid.protocol.feed_responses import (
    Connected,
    DataUpdated,
    FeedNews,
    FeedReport,
    FlashEntry,
    FlashReady,
    Pushed,
)
from superfluid.protocol.wire import shortest_single

ALWAYS = (
    "created", "last_used", "tokens", "kv_tokens", "busy", "turns", "data_end", "data_version", "pending",
    "pre_decode", "ready", "evicted",
)  # fmt: skip
OWN = ("taken", "total_pushed", "total_dropped", "run", "base")
"""What this server adds, as `superfluid`, for producers that lose nothing over a restart: see FeedReport."""

SOMETIMES = ("window", "frozen_end", "ready_token")


def session(report: FeedReport) -> dict[str, Any]:
    """A session without a name goes by its number."""
    return {
        "id": report.name or str(report.session),
        "object": "session",
        **{name: getattr(report, name) for name in ALWAYS},
        **_there({name: getattr(report, name) for name in SOMETIMES}),
        **_there({"ready_gap": _short(report.ready_gap)}),
        "superfluid": {name: getattr(report, name) for name in OWN},
    }


def push(pushed: Pushed) -> dict[str, Any]:
    return {
        "pushed": pushed.pushed,
        "dropped": pushed.dropped,
        "pending": pushed.pending,
        "pending_bytes": pushed.pending_bytes,
        "total_pushed": pushed.total_pushed,
        "total_dropped": pushed.total_dropped,
        "data_version": pushed.data_version,
    }


def flash(entry: FlashEntry) -> dict[str, Any]:
    return {
        "id": entry.id,
        "object": "session.flash_query",
        "query": entry.query,
        "max_tokens": entry.max_tokens,
        "tokens": entry.tokens,
        "fresh": entry.fresh,
        **_there(
            {
                "value": entry.value,
                "data_version": entry.data_version,
                "confidence": _short(entry.confidence),
                "evaluated_at": entry.evaluated_at,
            }
        ),
    }


def event(news: FeedNews) -> tuple[str, dict[str, Any]]:
    """An event's name and its data."""
    match news:
        case Connected():
            counts = {"data_version": news.data_version, "flash_queries": news.flash_queries}
            return "connected", {"session_id": news.name or str(news.session), **counts}
        case FlashReady():
            return "flash_ready", {
                "id": news.id,
                "query": news.query,
                "value": news.value,
                "data_version": news.data_version,
                "confidence": _short(news.confidence),
            }
        case DataUpdated():
            return "data_updated", {
                "data_version": news.data_version,
                "tokens": news.tokens,
                "pending": news.pending,
            }


def _there(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _short(value: float | None) -> float | None:
    return None if value is None else float(shortest_single(value))
