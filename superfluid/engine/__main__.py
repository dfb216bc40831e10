"""The engine worker's process: `python -m superfluid.engine --fd N`. The daemon starts it; nobody else needs to."""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import socket
import sys

from superfluid.engine.channel import Channel, Closed
from superfluid.engine.fake import open_fake
from superfluid.engine.logs import say
from superfluid.engine.worker import Opener, serve
from superfluid.protocol.errors import DecodeError

_PR_SET_PDEATHSIG = 1
_ORPHANED = 1
_GARBAGE = 3


def main(arguments: list[str]) -> int:
    """The exit status: 0 when the daemon left, 1 when it had left before we began, 3 when it sent garbage."""
    parser = argparse.ArgumentParser(prog="superfluid.engine")
    parser.add_argument("--fd", type=int, required=True, help="this end of the socket pair")
    parser.add_argument("--parent", type=int, default=os.getppid(), help="process id of the daemon")
    parser.add_argument("--fake", nargs="?", const="", metavar="KEY=VALUE,...", help="a small fake model, for tests")
    options = parser.parse_args(arguments)
    # Ctrl-C reaches the whole group of the terminal, and a service manager's SIGTERM every process of the service;
    # the daemon drains, and needs the worker for it.
    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, signal.SIG_IGN)
    if not _die_with(options.parent):
        return _ORPHANED
    channel = Channel(socket.socket(fileno=options.fd))
    try:
        serve(channel, _opener(options.fake), check=options.fake is not None)
    except Closed:
        return 0
    except DecodeError as fault:
        say("error", f"the daemon sent garbage: {fault}")
        return _GARBAGE
    return 0


def _opener(fake: str | None) -> Opener:
    if fake is not None:
        return lambda load, threads, progress: open_fake(load, fake, progress)
    # Read when libgomp loads. The default spins ten times as long, which a neighbour on the same core pays for.
    os.environ.setdefault("GOMP_SPINCOUNT", "30000")
    from superfluid.engine.llama import open_llama

    return open_llama


def _die_with(parent: int) -> bool:
    """Have the kernel kill this process when its parent dies. False where that has happened already."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    return os.getppid() == parent


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
