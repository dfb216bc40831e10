"""`superfluid session check`"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from superfluid_cli import places, terminal, values
from superfluid_cli.counting import counted
from superfluid_cli.exits import CliError, Exit

Sessions = Annotated[
    Path | None,
    typer.Option(
        "--sessions",
        metavar="DIR",
        envvar="SUPERFLUID_SESSIONS",
        show_envvar=True,
        parser=values.path,
        help="Where sessions are kept.",
        show_default="sessions in $SUPERFLUID_HOME",
    ),
]


def check(sessions: Sessions = None) -> int:
    """Look for damaged records in every database of the sessions directory; the daemon may be running or not.

    Prints a line for each: in a pipe database, session and event, tab-separated. Changes nothing, asks no daemon.
    """
    from superfluid.store.check import damaged_records
    from superfluid.store.errors import StoreError

    folder = sessions or places.default_sessions()
    if not folder.is_dir():
        raise CliError(f"no sessions directory at {folder}")
    damaged = unreadable = 0
    databases = sorted(folder.glob("*.db"))
    for path in databases:
        try:
            found = damaged_records(path)
        except StoreError as fault:
            terminal.complain(str(fault))
            unreadable += 1
            continue
        damaged += len(found)
        terminal.lines([_line(path.name, record.session, record.event) for record in found])
    problems = f"{counted(damaged, 'damaged record')}" + (f", {unreadable} unreadable" if unreadable else "")
    terminal.note(f"{counted(len(databases), 'database')} checked: {problems}")
    return Exit.FAILURE if damaged or unreadable else Exit.OK


def _line(database: str, session: int, event: int) -> str:
    if terminal.on_terminal(sys.stdout):
        return f"{terminal.shown(database)}: session {session}, event {event} is damaged"
    return f"{terminal.shown(database)}\t{session}\t{event}"
