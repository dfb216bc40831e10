"""`superfluid session purge`"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from superfluid.protocol import requests, responses
from superfluid.protocol.codes import PurgeMode
from superfluid_cli import options, terminal
from superfluid_cli.counting import counted
from superfluid_cli.exits import Exit, UsageError


def purge(
    session: options.Session,
    cascade: Annotated[bool, typer.Option("--cascade", help="Purge everything forked from it, too.")] = False,
    reroot: Annotated[
        bool, typer.Option("--reroot", help="Keep its forks, with what they inherited. The default.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    socket: options.Socket = None,
) -> int:
    """Remove a session for good and print the ids that are gone. Asks first."""
    if cascade and reroot:
        raise UsageError("--cascade and --reroot exclude each other")
    if not yes and not terminal.on_terminal(sys.stdin):
        raise UsageError("purge cannot be undone; give --yes where nobody can be asked")
    with options.reach(session, socket) as (client, id_):
        known = client.summary(id_)
        if not yes and not _agreed(known, cascade):
            terminal.note("nothing was purged")
            return Exit.FAILURE
        mode = PurgeMode.CASCADE if cascade else PurgeMode.REROOT
        purged = client.ask(requests.Purge(id_, known.generation, mode), responses.Purged).sessions
    terminal.lines([str(gone) for gone in purged])
    return Exit.OK


def _agreed(known: responses.SessionSummary, cascade: bool) -> bool:
    title = f" ({terminal.shown(known.title)})" if known.title else ""
    more = " and everything forked from it" if cascade else ""
    terminal.note(f"Purge session {known.id}{title}{more} for good? It has {counted(known.events, 'event')}. [y/N]")
    return sys.stdin.readline().strip().lower() in ("y", "yes")
