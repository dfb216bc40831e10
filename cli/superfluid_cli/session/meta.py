"""`superfluid session rename`, `archive`, `unarchive`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from superfluid.protocol import requests, responses
from superfluid_cli import options
from superfluid_cli.message import message
from superfluid_cli.values import IdOrName


def rename(
    session: options.Session,
    title: Annotated[str, typer.Argument(metavar="TITLE", help="The new title.")],
    socket: options.Socket = None,
) -> None:
    """Give a session a title."""
    _set(session, socket, title=message(title, None))


def archive(session: options.Session, socket: options.Socket = None) -> None:
    """Leave a session out of `list` and `tree`. It can still be used."""
    _set(session, socket, archived=True)


def unarchive(session: options.Session, socket: options.Socket = None) -> None:
    """Show an archived session again."""
    _set(session, socket, archived=False)


def _set(session: IdOrName, socket: Path | None, title: str | None = None, archived: bool | None = None) -> None:
    with options.reach(session, socket) as (client, id_):
        version = client.summary(id_).meta_version
        client.ask(requests.SetMeta(id_, version, title, archived), responses.Meta)
