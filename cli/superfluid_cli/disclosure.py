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


_DATA = -1
"""The run of what is pushed, beside those of the channels."""


class Disclosure:
    """The texts of a log. What the model draws comes in pieces, and so does what is pushed line by line: those of one
    run are looked at together."""

    def __init__(self, events: Sequence[records.Event], content: bool) -> None:
        self.content = content
        self._clean: dict[tuple[int, int], str] = {}
        runs: dict[int, list[tuple[int, int, str]]] = {}
        for event in events:
            match event.body:
                case records.Generated(channel=channel, text=text):
                    runs.setdefault(channel, []).append((event.event_id, 0, text))
                case records.Appended(text=str(text)):
                    runs.setdefault(Channel.TEXT, []).append((event.event_id, 0, text))
                case records.Ingested(entries=entries) | records.Erased(entries=entries):
                    lines = [(event.event_id, place, f"{entry.text}\n") for place, entry in enumerate(entries)]
                    runs.setdefault(_DATA, []).extend(lines)
                case body if isinstance(body, _BETWEEN):
                    self._close(runs)
        self._close(runs)

    def shown(self, text: str) -> Any:
        """A text of its own, as JSON."""
        return self._limited(redact(text)) if self.content else sized(text)

    def piece(self, event: records.Event, place: int, text: str) -> Any:
        """The text at a place of an event, which may go on in the next ones, as JSON."""
        if not self.content:
            return sized(text)
        return self._limited(self._clean[event.event_id, place].removesuffix("\n" if not text.endswith("\n") else ""))

    def whole(self, events: Sequence[records.Event]) -> str:
        """What several pieces say together."""
        return self._limited("".join(self._clean.get((event.event_id, 0), "") for event in events))

    def _close(self, runs: dict[int, list[tuple[int, int, str]]]) -> None:
        for run in runs.values():
            clean = redact_run([text for _, _, text in run])
            self._clean.update(((event, place), text) for (event, place, _), text in zip(run, clean, strict=True))
        runs.clear()

    def _limited(self, text: str) -> str:
        data = text.encode("utf-8", "replace")
        if len(data) <= MOST_BYTES:
            return text
        return f"{data[:MOST_BYTES].decode('utf-8', 'ignore')}[{len(data) - MOST_BYTES} bytes more]"


def sized(text: str) -> dict[str, int]:
    """What is told of a text that is not shown."""
    return {"bytes": len(text.encode("utf-8", "replace"))}
