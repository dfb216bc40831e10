"""What is pushed, as JSON says it (spec: streaming-facts, 1.2)."""

from __future__ import annotations

import trio

from superfluid.sessions.senders import Numbered
from superfluid.transports.http.fields import Fields, missing, wrong

INLINE = 1 << 14
"""Entries that are looked at on the event loop; more go to a thread."""

_U64 = (1 << 64) - 1

EXPECTED = "a string, or a non-empty array of strings"


async def entries(fields: Fields) -> tuple[str, ...]:
    """The entries of `data`: a string is one. Raises ApiError."""
    value = fields.raw("data")
    if isinstance(value, list) and len(value) > INLINE:
        return await trio.to_thread.run_sync(_entries, fields)
    return _entries(fields)


def numbered(fields: Fields) -> Numbered | None:
    """How the sender counts the entries, in `superfluid`, where it does. Raises ApiError."""
    own = fields.object("superfluid")
    if own is None:
        return None
    sender, first = own.whole("sender", 0, _U64), own.whole("first", 0, _U64)
    if sender is None or first is None:
        raise missing(own.param("sender" if sender is None else "first"), "a whole number")
    return Numbered(sender, first)


def _entries(fields: Fields) -> tuple[str, ...]:
    value = fields.raw("data")
    if value is None:
        raise missing("data", EXPECTED)
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list) or not value:
        raise wrong("data", EXPECTED, value)
    for place, entry in enumerate(value):
        if not isinstance(entry, str):
            raise wrong(f"data[{place}]", "a string", entry)
    return tuple(value)
