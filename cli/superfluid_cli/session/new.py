"""`superfluid session new`"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from superfluid.protocol import requests, responses
from superfluid.protocol.codes import PurgeMode, Role
from superfluid.protocol.records import GenParams
from superfluid_cli import options, terminal
from superfluid_cli.client import Client
from superfluid_cli.exits import CliError, ServerSaid, UsageError
from superfluid_cli.message import given, message
from superfluid_cli.session import sampling

System = Annotated[str | None, typer.Option("--system", metavar="TEXT", help="The system message to open with.")]
Tools = Annotated[
    list[str] | None,
    typer.Option(
        "--tool",
        metavar="FILE",
        help="A tool that the model may call: a function as OpenAI or Anthropic declare it, or an array of them, as "
        "JSON. Repeatable.",
    ),
]
Title = Annotated[str | None, typer.Option("--title", metavar="TEXT", help="A title for the list.")]


def new(
    system: System = None,
    title: Title = None,
    tool: Tools = None,
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
    tools = tuple(declaration for path in tool or [] for declaration in _declared(path))
    with options.connect(socket) as client:
        terminal.line(str(create(client, params, system, title, tools)))


def _declared(path: str) -> list[str]:
    """The declarations in a file, each as JSON text. Whether they are tools is for the daemon to say."""
    text = given(None, Path(path), "", "--tool")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as fault:
        raise UsageError(f"--tool {path} is not JSON: {fault}") from None
    return [json.dumps(each, ensure_ascii=False) for each in (value if isinstance(value, list) else [value])]


def create(
    client: Client,
    params: GenParams,
    system: str | None = None,
    title: str | None = None,
    tools: tuple[str, ...] = (),
) -> int:
    """A new session's id. Where the daemon refuses the rest of it, the session is purged again."""
    session = client.ask(requests.Create(None, params), responses.Created).session
    try:
        if tools:
            client.ask(requests.AppendSystem(session, system, tools), responses.Committed)
        elif system is not None:
            client.ask(requests.AppendMessage(session, Role.SYSTEM, system), responses.Committed)
        if title is not None:
            client.ask(requests.SetMeta(session, 0, title, None), responses.Meta)
    except CliError as fault:
        if isinstance(fault, ServerSaid) and _taken_back(client, session):
            raise
        problem = CliError(
            f"session {session} was made, but not all of it: {fault}; `superfluid session purge {session}` removes it"
        )
        problem.code = fault.code
        raise problem from None
    return session


def _taken_back(client: Client, session: int) -> bool:
    """Purge a session that was made a moment ago. False where that fails too."""
    try:
        client.ask(requests.Purge(session, 0, PurgeMode.REROOT), responses.Purged)
    except CliError:
        return False
    return True
