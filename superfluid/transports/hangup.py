"""Whether a client has hung up, told without reading what it sent."""

from __future__ import annotations

import select

import trio

LOOK = 0.1
"""Seconds between two looks."""

_RESET = select.POLLHUP | select.POLLERR
_FINISHED = _RESET | getattr(select, "POLLRDHUP", 0)


def hung_up(socket: trio.socket.SocketType, *, half: bool = False) -> bool:
    """Whether the other end is gone. With `half`, one that only sends no more counts as gone too."""
    if socket.fileno() < 0:
        return True
    poll = select.poll()
    poll.register(socket.fileno(), _FINISHED if half else 0)
    return any(event & (_FINISHED if half else _RESET) for _, event in poll.poll(0))


async def until_hung_up(socket: trio.socket.SocketType) -> None:
    """Return once the other end is gone. A client that has only shut its writing side down still listens."""
    while True:
        await trio.sleep(LOOK)
        if hung_up(socket):
            return
