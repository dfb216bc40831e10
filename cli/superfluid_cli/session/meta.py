"""`superfluid session rename`, `archive`, `unarchive`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from superfluid.protocol import requests, responses
from superfluid_cli import options
from superfluid_cli.message import message


def rename(
    session: options.SessionId,
    title: Annotated[str, typer.Argument(metavar="TITLE", help="The new title.")],
    socket: options.Socket = None,
) -> None:
    """Give a session a title."""
    _set(session, socket, title=message(title, None))


def archive(session: options.SessionId, socket: options.Socket = None) -> None:
    """Leave a session out of `list` and `tree`. It can still be used."""
    _set(session, socket, archived=True)


def unarchive(session: options.SessionId, socket: options.Socket = None) -> None:
    """Show an archived session again."""
    _set(session, socket, archived=False)


def _set(session: int, socket: Path | None, title: str | None = None, archived: bool | None = None) -> None:
    with options.connect(socket) as client:
        version = client.summary(session).meta_version
        client.ask(requests.SetMeta(session, version, title, archived), responses.Meta)
