"""The tokens of pushed entries, as far as they matter: what cannot stay on the input anyway is not looked at.

Entries are tokenised a few at a time, in a thread where they are long, so that a full queue of megabytes costs what
fits into the window, and not what it holds.
"""

from __future__ import annotations

from collections.abc import Sequence

from superfluid.daemon.served import ServedModel
from superfluid.sessions.ingest import Line

AT_ONCE = 64
"""Entries tokenised in one go."""


async def lines_of(model: ServedModel, entries: Sequence[str], space: int, *, newest: bool) -> list[Line]:
    """The lines of `entries`, in order, for `decide_batch`.

    With `newest`, of a window, the newest are looked at until they fill the `space`, of so many tokens; without, the
    oldest, as far as they may still fit.
    """
    if not newest:
        return await _oldest(model, entries, space)
    lines: list[Line] = []
    rest, total = entries, 0
    while rest and total <= space:
        part, rest = rest[-AT_ONCE:], rest[:-AT_ONCE]
        lines[:0] = await _some(model, part, space)
        total = sum(len(span) for _, span in lines if span is not None and len(span) <= space)
    return [*((text, None) for text in rest), *lines]


async def _oldest(model: ServedModel, entries: Sequence[str], space: int) -> list[Line]:
    lines: list[Line] = []
    rest = entries
    while rest and space > 0:
        part, rest = rest[:AT_ONCE], rest[AT_ONCE:]
        for text, span in await _some(model, part, space):
            if span and len(span) <= space:
                space -= len(span)
            lines.append((text, span))
    return [*lines, *((text, ()) for text in rest)]


async def _some(model: ServedModel, entries: Sequence[str], most: int) -> list[Line]:
    """No tokens for what must have more than `most`: even the longest token is only so long."""
    fits = [len(text) // model.vocabulary.longest < most for text in entries]
    spans = await model.lines([text if fit else "" for text, fit in zip(entries, fits, strict=True)])
    return [(text, span if fit else ()) for text, span, fit in zip(entries, spans, fits, strict=True)]
