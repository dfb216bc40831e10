"""`superfluid session block`"""

from __future__ import annotations

from typing import Annotated

import typer

from superfluid.protocol import requests, responses
from superfluid.protocol.codes import BlockKind, Role
from superfluid_cli import options, terminal, values
from superfluid_cli.message import raw_text

_KINDS = {kind.name.lower().replace("_", "-"): kind for kind in BlockKind if kind is not BlockKind.IMAGE}


def _kind(text: str) -> int:
    word = text.strip().lower().replace("_", "-")
    if word not in _KINDS:
        raise ValueError(f"expected one of {', '.join(_KINDS)}, got {text!r}")
    return _KINDS[word]


def block(
    session: options.Session,
    kind: Annotated[int, typer.Argument(metavar="KIND", parser=_kind, help=f"One of {', '.join(_KINDS)}.")],
    text: options.Text = None,
    file: options.File = None,
    role: Annotated[
        int,
        typer.Option("--role", metavar="ROLE", parser=values.role, help="user, system or assistant. Default: user."),
    ] = Role.USER,
    socket: options.Socket = None,
) -> None:
    """Append a block, whose payload is TEXT, to a session, and print the new event's id."""
    payload = raw_text(text, file)
    with options.reach(session, socket) as (client, id_):
        reply = client.ask(requests.AppendBlock(id_, role, kind, payload), responses.Committed)
    terminal.line(str(reply.event.event_id))
