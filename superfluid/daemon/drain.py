"""How a daemon stops: streams end, the log is flushed, and nobody holds it up."""

from __future__ import annotations

import logging
import os
import threading

import trio

from superfluid.daemon.activity import Activity
from superfluid.daemon.bus import Bus
from superfluid.daemon.engine.room import EngineRoom
from superfluid.daemon.feeds.ingesting import Ingesting
from superfluid.daemon.sessions.generating import Generating
from superfluid.protocol.refusals import ShuttingDown

LAST_WORDS = 1.0
"""Seconds for replies and subscriptions to be read once everything has ended."""

LAST_DATA = 2.0
"""Seconds for pending data to be committed."""

OVERTIME = 1.5
"""Seconds past the drain timeout after which the process leaves whatever is still going on: a worker in the middle
of a long round, one that hangs."""


async def drain(
    generating: Generating,
    ingesting: Ingesting,
    room: EngineRoom,
    bus: Bus,
    activity: Activity,
    seconds: float,
) -> None:
    """End every generation with finish 4 and every subscription, within `seconds`; pending data is committed. What
    does not end in time ends with an error."""
    _leave_at_the_latest(seconds + OVERTIME)
    began = trio.current_time()
    generating.closing = True
    with trio.move_on_after(seconds):
        for generation in room.in_flight.all():
            room.cancel(generation)
        for generation in room.in_flight.all():
            await generation.ended.wait()
        with trio.move_on_after(LAST_DATA):
            await ingesting.rest()
    for generation in room.in_flight.all():  # the round in progress takes too long
        room.in_flight.drop(generation, ShuttingDown())
    bus.close()
    with trio.move_on_after(min(LAST_WORDS, max(seconds, 0.1))):
        await activity.rest()
    # What is resident goes to disk in the time that is left, so that the next start is warm.
    left = began + seconds - trio.current_time()
    with trio.move_on_after(max(left, 0)):
        await room.orders.park(left)


def _leave_at_the_latest(seconds: float) -> None:
    def leave() -> None:
        logging.shutdown()
        os._exit(0)

    timer = threading.Timer(seconds, leave)
    timer.daemon = True
    timer.start()
