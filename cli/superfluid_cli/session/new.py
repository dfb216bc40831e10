"""`superfluid session new`"""

from __future__ import annotations

from typing import Annotated

import typer

from superfluid.protocol import requests, responses
from superfluid.protocol.codes import Role
from superfluid.protocol.records import GenParams
from superfluid_cli import options, terminal
from superfluid_cli.client import Client
from superfluid_cli.exits import CliError
from superfluid_cli.message import message
from superfluid_cli.session import sampling

System = Annotated[str | None, typer.Option("--system", metavar="TEXT", help="The system message to open with.")]
Title = Annotated[str | None, typer.Option("--title", metavar="TEXT", help="A title for the list.")]


def new(
    system: System = None,
    title: Title = None,
    temperature: sampling.Temperature = None,
    top_p: sampling.TopP = 0.95,
    min_p: sampling.MinP = 0.0,
    top_k: sampling.TopK = 0,
    seed: options.Seed = None,
    greedy: sampling.Greedy = False,
    socket: options.Socket = None,
) -> None:
    """Make a session and print its id."""
    params = sampling.sampling(temperature, top_p, min_p, top_k, seed, greedy)
    system = message(system, None) if system is not None else None
    title = message(title, None) if title is not None else None
    with options.connect(socket) as client:
        terminal.line(str(create(client, params, system, title)))


def create(client: Client, params: GenParams, system: str | None = None, title: str | None = None) -> int:
    """A new session's id. A failure after it exists says which one it is."""
    session = client.ask(requests.Create(None, params), responses.Created).session
    try:
        if system is not None:
            client.ask(requests.AppendMessage(session, Role.SYSTEM, system), responses.Committed)
        if title is not None:
            client.ask(requests.SetMeta(session, 0, title, None), responses.Meta)
    except CliError as fault:
        problem = CliError(f"session {session} was made, but not all of it: {fault}")
        problem.code = fault.code
        raise problem from None
    return session
