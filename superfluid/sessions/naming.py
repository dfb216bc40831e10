"""Names of sessions, and the windows of their feeds: what is allowed (decisions 1, 21, 28)."""

from __future__ import annotations

import re

from superfluid.protocol.feed_refusals import BadName, BadWindow
from superfluid.protocol.records import FeedOpened, Named
from superfluid.sessions.ingest import Room

_NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")


def name(text: str) -> Named:
    """Raises BadName. Digits alone would read as an id."""
    if not _NAME.fullmatch(text) or text.isdigit():
        raise BadName(text)
    return Named(text)


def feed(window: int | None, pre_decode: bool, room: Room) -> FeedOpened:
    """Raises BadWindow."""
    most = room.input - 1
    if window is not None and not 1 <= window <= most:
        raise BadWindow(window, most)
    return FeedOpened(window, pre_decode)
