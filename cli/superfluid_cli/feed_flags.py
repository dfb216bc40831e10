"""Options of `serve` that are about sessions into which data streams."""

from __future__ import annotations

from typing import Annotated

from superfluid_cli import values
from superfluid_cli.flags import option

QueryReserve = Annotated[
    int,
    option(
        "--query-reserve",
        parser=values.whole(16, 1 << 30),
        help="Tokens of the context that data leave free for questions and replies.",
        default=True,
    ),
]
LiveSessions = Annotated[
    int,
    option(
        "--live-sessions",
        parser=values.whole(1, 256),
        help="Sessions that may have a name at once.",
        default=True,
    ),
]
FeedKeep = Annotated[
    float,
    option(
        "--feed-keep",
        metavar="TIME|forever",
        parser=values.kept,
        help="The log keeps data that a window has evicted for such a time, then erases it.",
        default="forever",
    ),
]
SessionIdle = Annotated[
    float,
    option(
        "--session-idle",
        metavar="TIME",
        parser=values.duration,
        help="After such a time without use, the KV of a session with a name leaves memory; 0 is never.",
        default="1h",
    ),
]
