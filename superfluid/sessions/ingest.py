"""The rule of a batch: which entries go on the input, and which older ones leave it (decisions 20 to 22).

The window caps the data alone, the context caps everything. Whole entries leave, oldest first, down to nine tenths of
what there is room for, so that a full window does not cost an eviction an entry.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from superfluid.protocol.records import Entry, Ingested, Span
from superfluid.sessions.state import SessionState

KEPT_TENTHS = 9


@dataclass(frozen=True, slots=True)
class Room:
    """Tokens of the context, and how many of them are kept free for questions and replies."""

    context: int
    reserve: int

    @property
    def input(self) -> int:
        """The most tokens that a session with data may have on its input."""
        return max(0, self.context - self.reserve)


Line = tuple[str, Span | None]
"""An entry and the tokens of its line; None where newer lines fill the window alone, so that nobody looked."""


def decide_batch(state: SessionState, lines: Sequence[Line], dropped: int, head: Span, room: Room) -> Ingested:
    """What becomes of the entries of a batch, oldest first.

    `dropped` were dropped before they got here; `head` opens a turn for data, () where one is open. There is always a
    record, also where nothing of the batch stays.
    """
    space = space_for_lines(state, head, room)
    if state.feed.window is None:
        entries, leaving = _appended(lines, space), 0
    else:
        entries, leaving = _windowed(state, lines, space)
    return Ingested(
        version=state.feed.version + 1,
        head=head if entries else (),
        entries=entries,
        evicted=leaving,
        dropped=dropped + len(lines) - len(entries),
    )


def space_for_lines(state: SessionState, head: Span, room: Room) -> int:
    """The most tokens that the lines of a batch may have; with a window, all those that the session holds may leave
    for them."""
    if state.feed.window is None:
        return room.input - len(state.tokens) - len(head)
    return min(state.feed.window, room.input - (len(state.tokens) - state.feed.tokens) - len(head))


def _appended(lines: Sequence[Line], room: int) -> tuple[Entry, ...]:
    """Without a window: what does not fit any more is dropped."""
    entries = []
    for text, span in lines:
        if span and len(span) <= room:
            room -= len(span)
            entries.append(Entry(text, span))
    return tuple(entries)


def _windowed(state: SessionState, lines: Sequence[Line], room: int) -> tuple[tuple[Entry, ...], int]:
    """With a window, older entries make room, those of the same batch too, and one that is too long alone is dropped.

    Also how many entries leave.
    """
    fitting = [(text, span) for text, span in lines if span is None or 0 < len(span) <= room]
    seen = sum(bool(span) for _, span in fitting)
    if not seen:
        return (), 0
    held = [length for _, length in state.feed.entries]
    unseen = len(fitting) - seen
    leaving = _leaving([*held, *[len(span or ()) for _, span in fitting]], room)
    if unseen:
        leaving = max(leaving, len(held) + unseen)
    gone = max(0, leaving - len(held))
    entries = tuple(Entry(text, (span or ()) if place >= gone else ()) for place, (text, span) in enumerate(fitting))
    return entries, leaving


def _leaving(lengths: Sequence[int], room: int) -> int:
    """How many of the oldest have to go: none where all fit, else until they fill nine tenths; the last stays."""
    total = sum(lengths)
    if total <= room:
        return 0
    leaving = 0
    while leaving < len(lengths) - 1 and total * 10 > room * KEPT_TENTHS:
        total -= lengths[leaving]
        leaving += 1
    return leaving
