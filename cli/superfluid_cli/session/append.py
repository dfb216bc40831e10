"""`superfluid session append`"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from superfluid.protocol import requests, responses
from superfluid_cli import options, terminal, values
from superfluid_cli.exits import UsageError
from superfluid_cli.message import message, raw_text

Role = Annotated[
    int | None,
    typer.Option("--role", metavar="ROLE", parser=values.role, help="As a message of user, system or assistant."),
]
Tokens = Annotated[
    list[str] | None, typer.Option("--tokens", metavar="1,2,3", help="These token ids, as they are. Repeatable.")
]


def append(
    session: options.Session,
    text: options.Text = None,
    file: options.File = None,
    tokens: Tokens = None,
    role: Role = None,
    socket: options.Socket = None,
) -> None:
    """Append text to a session without generating, and print the new event's id.

    Raw text goes to the model as it is, without the template of a message; with --role it is a message.
    """
    request = _request(text, file, tokens, role)
    with options.reach(session, socket) as (client, id_):
        terminal.line(str(client.ask(dataclasses.replace(request, session=id_), responses.Committed).event.event_id))


def _request(
    text: str | None, file: Path | None, tokens: list[str] | None, role: int | None
) -> requests.Append | requests.AppendMessage:
    """The request, its session still to be filled in: a bad command line is refused before anybody is asked."""
    if tokens:
        if text is not None or file is not None or role is not None:
            raise UsageError("--tokens goes with neither TEXT nor --file nor --role")
        return requests.Append(0, None, _span(tokens))
    if role is not None:
        return requests.AppendMessage(0, role, message(text, file))
    return requests.Append(0, raw_text(text, file), ())


def _span(tokens: list[str]) -> tuple[int, ...]:
    try:
        return tuple(token for part in tokens for token in values.token_ids(part))
    except ValueError as fault:
        raise UsageError(f"--tokens: {fault}") from None
