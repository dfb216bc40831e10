"""How much of a session's texts an export shows: nothing but their size, or the text without what looks secret."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from superfluid.protocol import records
from superfluid.protocol.codes import Channel
from superfluid_cli.redaction import redact, redact_run

MOST_BYTES = 64 << 10
"""Bytes of a text that are shown."""

_BETWEEN = (
    records.Message,
    records.GenerationPrompt,
    records.ToolResult,
    records.Block,
    records.Created,
)
"""What stands between two texts of the model, so that no secret reaches across."""


class Disclosure:
    """The texts of a log. What the model draws comes in pieces: those of one run are looked at together."""

    def __init__(self, events: Sequence[records.Event], content: bool) -> None:
        self.content = content
        self._pieces: dict[int, str] = {}
        runs: dict[int, list[records.Event]] = {}
        for event in events:
            if isinstance(event.body, _BETWEEN):
                self._close(runs)
            elif isinstance(event.body, records.Generated):
                runs.setdefault(event.body.channel, []).append(event)
            elif isinstance(event.body, records.Appended):
                runs.setdefault(Channel.TEXT, []).append(event)
        self._close(runs)

    def shown(self, text: str) -> Any:
        """A text of its own, as JSON."""
        return self._limited(redact(text)) if self.content else sized(text)

    def piece(self, event: records.Event, text: str) -> Any:
        """The text of an event that may go on in the next ones, as JSON."""
        if not self.content or event.event_id not in self._pieces:
            return self.shown(text)
        return self._limited(self._pieces[event.event_id])

    def whole(self, events: Sequence[records.Event]) -> str:
        """What several pieces say together."""
        return self._limited("".join(self._pieces.get(event.event_id, "") for event in events))

    def _close(self, runs: dict[int, list[records.Event]]) -> None:
        for run in runs.values():
            clean = redact_run([getattr(event.body, "text", None) or "" for event in run])
            self._pieces.update(zip((event.event_id for event in run), clean, strict=True))
        runs.clear()

    def _limited(self, text: str) -> str:
        data = text.encode("utf-8", "replace")
        if len(data) <= MOST_BYTES:
            return text
        return f"{data[:MOST_BYTES].decode('utf-8', 'ignore')}[{len(data) - MOST_BYTES} bytes more]"


def sized(text: str) -> dict[str, int]:
    """What is told of a text that is not shown."""
    return {"bytes": len(text.encode("utf-8", "replace"))}
