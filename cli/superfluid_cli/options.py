"""Options and arguments that several commands share, and the client they lead to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from superfluid_cli import places, values
from superfluid_cli.exits import CliError

COMPLETING = 1.0
"""Seconds that a shell which completes a line waits for a daemon."""

if TYPE_CHECKING:
    from superfluid_cli.client import Client

Socket = Annotated[
    Path | None,
    typer.Option(
        "--socket",
        metavar="PATH",
        envvar="SUPERFLUID_SOCKET",
        show_envvar=True,
        parser=values.socket_path,
        help="The daemon's socket. Default: superfluid.sock in $SUPERFLUID_HOME, which is ~/.superfluid by default.",
    ),
]


def known_sessions(ctx: typer.Context, incomplete: str) -> list[str]:
    """What a shell may put where a session is wanted: ids and names that begin so, none without a daemon."""
    from superfluid.protocol import requests, responses

    try:
        given = ctx.params.get("socket")
        with connect(values.socket_path(given) if isinstance(given, str) else given, COMPLETING) as client:
            ids = client.ask(requests.Sessions(include_archived=False), responses.SessionList).sessions
            names = client.ask(requests.Names(), responses.Names).names
    except (CliError, ValueError):
        return []
    words = [name for _, name in names] + [str(entry.id) for entry in ids]
    return [word for word in words if word.startswith(incomplete)]


Session = Annotated[
    values.IdOrName,
    typer.Argument(
        metavar="ID", parser=values.session_ref, help="The session's id or name.", autocompletion=known_sessions
    ),
]
CallId = Annotated[
    int, typer.Argument(metavar="CALL", parser=values.call_id, help="The call's id, which is its event's.")
]
Text = Annotated[str | None, typer.Argument(metavar="TEXT", help="The text; read from stdin when absent or `-`.")]
File = Annotated[
    Path | None, typer.Option("--file", "-f", metavar="FILE", parser=values.path, help="Read the text from FILE.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Cursor = Annotated[
    int, typer.Option("--cursor", metavar="N", parser=values.event_id, help="Start at event N.", show_default=True)
]
MaxTokens = Annotated[
    int,
    typer.Option(
        "--max-tokens",
        metavar="N",
        parser=values.token_count,
        envvar="SUPERFLUID_MAX_TOKENS",
        show_envvar=True,
        show_default=True,
        help="Stop the reply after N tokens.",
    ),
]
Seed = Annotated[
    int | None, typer.Option("--seed", metavar="N", parser=values.seed, help="Seed of the random draws.")
]


def connect(socket: Path | None, timeout: float | None = None) -> Client:
    """A client of the daemon at `socket`, by default the user's own. Raises NoDaemon."""
    from superfluid_cli.client import Client

    return Client(socket if socket is not None else places.default_socket(), timeout)


@contextmanager
def reach(session: values.IdOrName, socket: Path | None) -> Iterator[tuple[Client, int]]:
    """A client as of `connect`, closed at the end, and the id of a session that may have been given by name."""
    with connect(socket) as client:
        yield client, client.id_of(session)
