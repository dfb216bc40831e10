"""`superfluid session ask-permission`, `permit`"""

from __future__ import annotations

from typing import Annotated

import typer

from superfluid.protocol import requests, responses
from superfluid_cli import options, terminal, values
from superfluid_cli.message import message

Call = Annotated[
    int, typer.Option("--call", metavar="CALL", parser=values.call_id, help="The tool call that it is about.")
]
Request = Annotated[
    int, typer.Argument(metavar="REQUEST", parser=values.event_id, help="The request's id, which is its event's.")
]


def ask_permission(
    session: options.Session,
    text: options.Text = None,
    file: options.File = None,
    call: Call = 0,
    socket: options.Socket = None,
) -> None:
    """Put a question to whoever decides, and print the request's id. The session generates nothing until it is
    answered."""
    words = message(text, file)
    with options.reach(session, socket) as (client, id_):
        reply = client.ask(requests.RequestPermission(id_, call, words), responses.Committed)
    terminal.line(str(reply.event.event_id))


def permit(
    session: options.Session,
    request: Request,
    deny: Annotated[bool, typer.Option("--deny", help="Say no.")] = False,
    socket: options.Socket = None,
) -> None:
    """Answer a request for permission with yes, or with no, and print the new event's id."""
    with options.reach(session, socket) as (client, id_):
        reply = client.ask(requests.RespondPermission(id_, request, not deny), responses.Committed)
    terminal.line(str(reply.event.event_id))
