"""`superfluid session feed`, `open`, `name`: sessions into which data is pushed."""

from __future__ import annotations

from typing import Annotated

import typer

from superfluid.protocol import requests, responses
from superfluid.protocol.feed_responses import FeedReport
from superfluid_cli import events, options, tables, terminal, values
from superfluid_cli.counting import counted

Window = Annotated[
    int | None,
    typer.Option(
        "--window",
        metavar="N",
        parser=values.whole(1, (1 << 64) - 1),
        help="Keep at most N tokens of data: the oldest entries give way. Without it, what does not fit is dropped.",
    ),
]
PreDecode = Annotated[
    bool, typer.Option("--pre-decode", help="After each batch, decode as far as a question begins (`--fast-answer`).")
]
Name = Annotated[
    str,
    typer.Argument(metavar="NAME", parser=values.session_name, help="Letters, digits, _ and -; not digits alone."),
]


def open_(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", parser=values.session_name, help="Its name. Default: one is made up."),
    ] = None,
    window: Window = None,
    pre_decode: PreDecode = False,
    socket: options.Socket = None,
) -> None:
    """Make a named session and print its id and name."""
    with options.connect(socket) as client:
        opened = client.ask(requests.Open(name, window, pre_decode), responses.Opened)
    terminal.line(f"{opened.session}\t{opened.name}")


def name(session: options.Session, name: Name, socket: options.Socket = None) -> None:
    """Give a session a name, by which every command and the streaming API know it."""
    with options.reach(session, socket) as (client, id_):
        client.ask(requests.Name(id_, name), responses.Committed)


def feed(session: options.Session, json: options.Json = False, socket: options.Socket = None) -> None:
    """Show the data side of a session: how much is held, pending, evicted and dropped. With --json, one object."""
    with options.reach(session, socket) as (client, id_):
        report = client.ask(requests.FeedState(id_), responses.Feed).feed
    if json:
        terminal.line(_pretty(report))
    else:
        tables.show_facts(_facts(report))


def _pretty(report: FeedReport) -> str:
    import json

    from superfluid.protocol import jsonform

    return json.dumps(jsonform.to_json(FeedReport, report), ensure_ascii=False, indent=2)


def _facts(it: FeedReport) -> list[tuple[str, str]]:
    ready = "yes" if it.ready else "no"
    if it.ready_gap is not None:
        ready += f", token {it.ready_token}, logit gap {it.ready_gap:.3f}"
    facts = [
        ("session", str(it.session)),
        ("name", it.name or ""),
        ("created", events.moment(it.created * 1000)),
        ("last_used", events.moment(it.last_used * 1000)),
        ("tokens", str(it.tokens)),
        ("kv_tokens", str(it.kv_tokens)),
        ("data_end", str(it.data_end)),
        ("data_version", str(it.data_version)),
        ("window", "" if it.window is None else str(it.window)),
        ("frozen_end", "" if it.frozen_end is None else str(it.frozen_end)),
        ("pending", f"{counted(it.pending, 'entry', 'entries')}, {counted(it.pending_bytes, 'byte')}"),
        ("pushed", str(it.total_pushed)),
        ("taken", str(it.taken)),
        ("dropped", str(it.total_dropped)),
        ("evicted", str(it.evicted)),
        ("turns", str(it.turns)),
        ("busy", "yes" if it.busy else "no"),
        ("pre_decode", ready if it.pre_decode else ""),
    ]
    return [(name, value) for name, value in facts if value]
