"""`superfluid session fork`, `trim`, `edit`, `rebase`: a new session out of an old one."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from superfluid.protocol import records, requests, responses
from superfluid_cli import options, terminal, values
from superfluid_cli.client import Client
from superfluid_cli.exits import CliError, UsageError
from superfluid_cli.message import message

_PREFIX = "Keep the events before N."


def fork(
    session: options.Session,
    at: Annotated[
        int | None, typer.Option("--at", metavar="N", parser=values.event_id, help=f"{_PREFIX} Default: all.")
    ] = None,
    seed: options.Seed = None,
    socket: options.Socket = None,
) -> None:
    """Fork a session and print the new one's id. The parent stays as it is."""
    with options.reach(session, socket) as (client, id_):
        point = client.summary(id_).events if at is None else at
        params = None if seed is None else _reseeded(client, id_, seed)
        _print_created(client, requests.Fork(id_, point, params))


def trim(
    session: options.Session,
    to: Annotated[int, typer.Option("--to", metavar="N", parser=values.event_id, help=_PREFIX)],
    socket: options.Socket = None,
) -> None:
    """Make a session of the events before N and print its id."""
    with options.reach(session, socket) as (client, id_):
        _print_created(client, requests.Trim(id_, to))


def edit(
    session: options.Session,
    event: Annotated[int, typer.Argument(metavar="EVENT", parser=values.event_id, help="The message's event id.")],
    text: options.Text = None,
    file: options.File = None,
    socket: options.Socket = None,
) -> None:
    """Make a session in which one message reads TEXT and nothing follows it, and print its id."""
    words = message(text, file)
    with options.reach(session, socket) as (client, id_):
        rest = client.read(id_, event)
        role = _role_of(rest, id_, event)
        change = records.Replace(event, event + len(rest), role, words)
        _print_created(client, requests.Rebase(id_, (change,), None))


def rebase(
    session: options.Session,
    drop: Annotated[
        list[str] | None, typer.Option("--drop", metavar="A:B", help="Leave out the events A to B - 1. Repeatable.")
    ] = None,
    replace: Annotated[
        list[str] | None,
        typer.Option(
            "--replace", metavar="A:B:ROLE:TEXT", help="Put a message in the place of A to B - 1. Repeatable."
        ),
    ] = None,
    seed: options.Seed = None,
    socket: options.Socket = None,
) -> None:
    """Make a session with events left out or replaced, and print its id."""
    edits = [_drop(spec) for spec in drop or []] + [_replace(spec) for spec in replace or []]
    if not edits:
        raise UsageError("nothing to do: give --drop A:B or --replace A:B:ROLE:TEXT")
    edits.sort(key=lambda change: change.from_)
    with options.reach(session, socket) as (client, id_):
        params = None if seed is None else _reseeded(client, id_, seed)
        _print_created(client, requests.Rebase(id_, tuple(edits), params))


def _print_created(client: Client, request: requests.Request) -> None:
    terminal.line(str(client.ask(request, responses.Created).session))


def _reseeded(client: Client, session: int, seed: int) -> records.GenParams:
    """The session's own parameters with another seed: the daemon fills nothing in."""
    inspected = client.ask(requests.Inspect(session), responses.Inspection).inspection
    return dataclasses.replace(inspected.params, seed=seed)


def _role_of(rest: tuple[records.Event, ...], session: int, event: int) -> int:
    if not rest:
        raise CliError(f"session {session} has no event {event}")
    body = rest[0].body
    if not isinstance(body, records.Message):
        raise CliError(
            f"event {event} of session {session} is no message but {type(body).__name__}; "
            f"`superfluid session read {session}` lists the messages, `superfluid session rebase` replaces the rest"
        )
    return body.role


def _drop(spec: str) -> records.RebaseEdit:
    first, colon, end = spec.partition(":")
    if not colon:
        raise UsageError(f"--drop: expected A:B, got {spec!r}")
    try:
        return records.Drop(*_range(first, end))
    except ValueError as fault:
        raise UsageError(f"--drop: expected A:B, got {spec!r} ({fault})") from None


def _replace(spec: str) -> records.RebaseEdit:
    if spec.count(":") < 3:
        raise UsageError(f"--replace: expected A:B:ROLE:TEXT, got {spec!r}")
    first, end, role, text = spec.split(":", 3)
    try:
        return records.Replace(*_range(first, end), values.role(role), message(text, None))
    except ValueError as fault:
        raise UsageError(f"--replace: expected A:B:ROLE:TEXT, got {spec!r} ({fault})") from None


def _range(first: str, end: str) -> tuple[int, int]:
    low, high = values.event_id(first), values.event_id(end)
    if low >= high:
        raise ValueError(f"{low} is not before {high}")
    return low, high
