"""`superfluid session flash`: standing questions, answered again after every batch of data."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Annotated, ClassVar

import typer

from superfluid.protocol import requests, responses
from superfluid.protocol.feed_responses import FlashEntry, FlashReady
from superfluid_cli import options, tables, terminal, values
from superfluid_cli.app import overview
from superfluid_cli.exits import Exit
from superfluid_cli.lazy import Entry, LazyGroup
from superfluid_cli.message import message
from superfluid_cli.session.news import follow

_HEADINGS = ("id", "query", "answer", "version", "gap", "state")

MaxTokens = Annotated[
    int,
    typer.Option(
        "--max-tokens",
        metavar="N",
        parser=values.whole(1, 256),
        help="Stop an answer after N tokens, 1 to 256.",
        show_default=True,
    ),
]
Id = Annotated[
    int, typer.Argument(metavar="QUERY", parser=values.whole(1, (1 << 64) - 1), help="The flash query's id.")
]


class FlashGroup(LazyGroup):
    table: ClassVar[Mapping[str, Entry]] = {
        "add": Entry(f"{__name__}:add"),
        "list": Entry(f"{__name__}:list_queries"),
        "remove": Entry(f"{__name__}:remove"),
        "watch": Entry(f"{__name__}:watch"),
    }


app = typer.Typer(cls=FlashGroup, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.callback(invoke_without_command=True)
def flash(ctx: typer.Context) -> int:
    """Keep standing questions on a session, which are answered again after every batch of data."""
    if ctx.invoked_subcommand is None:
        return overview(ctx)
    return Exit.OK


def add(
    session: options.Session,
    text: options.Text = None,
    file: options.File = None,
    max_tokens: MaxTokens = 32,
    json: options.Json = False,
    socket: options.Socket = None,
) -> None:
    """Register a standing question and print its id."""
    query = message(text, file)
    with options.reach(session, socket) as (client, id_):
        entry = client.ask(requests.FlashAdd(id_, query, max_tokens), responses.Flash).entry
    terminal.line(_json(entry) if json else str(entry.id))


def list_queries(session: options.Session, json: options.Json = False, socket: options.Socket = None) -> None:
    """List the standing questions: id, query, answer, its data version, its logit gap, state."""
    with options.reach(session, socket) as (client, id_):
        entries = client.ask(requests.FlashList(id_), responses.Flashes).entries
    if json:
        terminal.lines([_json(entry) for entry in entries])
    else:
        tables.show_table(_HEADINGS, [_row(entry) for entry in entries], flexible=("query", "answer"))


def remove(session: options.Session, query: Id, socket: options.Socket = None) -> None:
    """Remove a standing question."""
    with options.reach(session, socket) as (client, id_):
        client.ask(requests.FlashRemove(id_, query), responses.FlashGone)


def watch(session: options.Session, json: options.Json = False, socket: options.Socket = None) -> None:
    """Print each answer that is there, then each that changes, until Ctrl-C. In a pipe: id, version, gap, answer."""
    for news in follow(session, socket):
        if isinstance(news, FlashReady):
            terminal.line(_told(news, json))


def _told(ready: FlashReady, json: bool) -> str:
    if json:
        from superfluid.protocol import jsonform

        return jsonform.dumps(FlashReady, ready)
    if terminal.on_terminal(sys.stdout):
        about = terminal.dim(f"#{ready.id} {terminal.shown(ready.query)}", sys.stdout)
        return f"{about}  {terminal.shown(ready.value)}"
    return "\t".join((str(ready.id), str(ready.data_version), f"{ready.confidence:.3f}", terminal.shown(ready.value)))


def _row(entry: FlashEntry) -> tuple[str, ...]:
    return (
        str(entry.id),
        entry.query,
        entry.value or "",
        "" if entry.data_version is None else str(entry.data_version),
        "" if entry.confidence is None else f"{entry.confidence:.3f}",
        "fresh" if entry.fresh else "waiting" if entry.value is None else "stale",
    )


def _json(entry: FlashEntry) -> str:
    from superfluid.protocol import jsonform

    return jsonform.dumps(FlashEntry, entry)
