"""The command `superfluid push`."""

from __future__ import annotations

import dataclasses
import json as json_
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from superfluid.protocol import requests, responses
from superfluid.protocol.feed_refusals import NameTaken
from superfluid_cli import http_flags, options, terminal, values
from superfluid_cli.client import Client
from superfluid_cli.counting import counted
from superfluid_cli.exits import CliError, Exit, NoDaemon, ServerSaid, UsageError
from superfluid_cli.push.ends import End, SocketEnd
from superfluid_cli.push.lines import LONGEST
from superfluid_cli.push.outbox import Acknowledgement
from superfluid_cli.push.pump import Pump
from superfluid_cli.push.signals import Stop
from superfluid_cli.push.source import source
from superfluid_cli.session.feed import PreDecode, Window


def server_url(text: str) -> str:
    """An address such as http://127.0.0.1:8453."""
    try:
        parts = urlsplit(text)
        known = parts.scheme in ("http", "https", "ws", "wss") and parts.hostname and (parts.port or True)
    except ValueError:
        known = False
    if not known or parts.query or parts.fragment or parts.username:
        raise ValueError(f"expected a URL such as http://127.0.0.1:8453, got {text!r}")
    return text


Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="TEXT", help="Entries; without any, or with `-`, the lines of stdin.", show_default=False),
]
File = Annotated[
    Path | None, typer.Option("--file", "-f", metavar="FILE", parser=values.path, help="Push the lines of FILE.")
]
Create = Annotated[bool, typer.Option("--create", help="Make the session where there is none of that name.")]
Null = Annotated[bool, typer.Option("--null", "-0", help="Entries end with NUL and may hold newlines.")]
Batch = Annotated[
    int,
    typer.Option(
        "--batch-ms",
        metavar="N",
        parser=values.whole(0, 60_000),
        help="Gather lines for N milliseconds before they are sent; 0 sends what is there.",
        show_default=True,
    ),
]
Wait = Annotated[bool, typer.Option("--wait", "-w", help="At the end, wait until everything is ingested.")]
Retry = Annotated[
    float,
    typer.Option(
        "--retry",
        metavar="TIME",
        parser=values.duration,
        help="How long to look for a daemon that went away: 60, 30s, 2m.",
        show_default="5m",
    ),
]
Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        parser=server_url,
        help="Push over the network instead of the socket, to the HTTP listener at URL.",
    ),
]
ApiKey = Annotated[
    str | None,
    typer.Option(
        "--api-key",
        metavar="KEY",
        parser=http_flags.key,
        envvar="SUPERFLUID_API_KEY",
        show_envvar=True,
        help="The key that the server at --url asks for.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print each acknowledgement as JSON.")]


def push(
    session: options.Session,
    text: Words = None,
    file: File = None,
    create: Create = False,
    window: Window = None,
    pre_decode: PreDecode = False,
    null: Null = False,
    batch_ms: Batch = 0,
    wait: Wait = False,
    retry: Retry = 300.0,
    url: Url = None,
    api_key: ApiKey = None,
    json: Json = False,
    socket: options.Socket = None,
) -> int:
    """Push lines into a session, which ingests them in the background: `tail -f feed.log | superfluid push feed`.

    Each line is an entry; blank ones are left out. Nothing is lost when the daemon restarts: what it had not ingested
    is sent again. It reads no faster than the session ingests. What cannot be delivered is printed on stdout, and the
    exit code is 1.
    """
    if (window is not None or pre_decode) and not create:
        raise UsageError("--window and --pre-decode are for a session that --create makes")
    entries = source(text or [], file, null)
    connect = _connector(session, socket, url, api_key, Making(window, pre_decode) if create else None)
    with Stop() as stop:
        printer = _Printer(stop, json, b"\0" if null else b"\n")
        pump = Pump(entries, connect, printer.acknowledged, batch_ms / 1000, retry, wait)
        code = _run(pump, stop)
    if entries.too_long:
        terminal.complain(f"left out {counted(entries.too_long, 'entry', 'entries')} over {LONGEST >> 20} MiB")
        code = code or Exit.FAILURE
    if pump.outbox.dropped:
        terminal.complain(
            f"the session dropped {counted(pump.outbox.dropped, 'entry', 'entries')}, for which there was no room"
        )
        code = code or Exit.FAILURE
    if entries.begun and stop.asked:
        terminal.note("a last line that had not come to its end was left out")
    undelivered = pump.undelivered()
    if undelivered:
        code = code or Exit.FAILURE
        terminal.complain(f"{counted(len(undelivered), 'entry', 'entries')} not delivered; they follow on stdout")
        printer.undelivered(undelivered)
    elif len(pump.outbox) and wait:
        terminal.note(f"{counted(len(pump.outbox), 'entry', 'entries')} accepted, but maybe not ingested yet")
    if pump.connected_once and not entries.ended:
        terminal.note("the rest of the input was not read")
    if printer.broken:
        raise BrokenPipeError
    if terminal.on_terminal(sys.stderr):
        terminal.note(terminal.dim(f"{counted(pump.outbox.acknowledged, 'entry', 'entries')} accepted", sys.stderr))
    return code


@dataclass(frozen=True, slots=True)
class Making:
    """How a session is made that is not there yet."""

    window: int | None
    pre_decode: bool


def _run(pump: Pump, stop: Stop) -> Exit:
    try:
        pump.run(stop)
    except CliError as fault:
        if isinstance(fault, NoDaemon) and not pump.connected_once:
            raise
        terminal.complain(str(fault))
        return Exit.CANCELLED if stop.asked else fault.code
    except KeyboardInterrupt:
        return Exit.CANCELLED
    return Exit.CANCELLED if stop.asked else Exit.OK


def _connector(
    session: values.IdOrName, socket: Path | None, url: str | None, key: str | None, making: Making | None
) -> Callable[[], End]:
    """What connects to the session, which is made the first time where it is asked for and not there."""
    if making is not None and session.id is not None:
        raise UsageError(f"--create needs a name, and {session} is an id")
    if url is not None:
        from superfluid_cli.push.web_end import Server, WebEnd

        server = Server(url, key)
        if making is not None and not server.create(session.name, making.window, making.pre_decode):
            _tell_apart(making, server.ask("GET", server.session(session.name)).get("window"))
        return lambda: WebEnd(server, session.name)
    if making is not None:
        _create(session.name, socket, making)
    return lambda: SocketEnd(socket, session)


def _create(name: str, socket: Path | None, making: Making) -> None:
    with options.connect(socket) as client:
        try:
            there = client.ask(requests.Resolve(name), responses.Resolved).session
            _tell_apart(making, client.ask(requests.FeedState(there), responses.Feed).feed.window)
        except ServerSaid as refusal:
            if refusal.code is not Exit.NO_SESSION:
                raise
            _open(client, name, making)


def _open(client: Client, name: str, making: Making) -> None:
    try:
        client.ask(requests.Open(name, making.window, making.pre_decode), responses.Opened)
    except ServerSaid as refusal:
        if str(refusal) != str(NameTaken(name)):  # another push may have made it a moment ago
            raise


def _tell_apart(making: Making, window: int | None) -> None:
    """The session is there already: say so where it is not what was asked for."""
    if making.window is not None and making.window != window:
        terminal.note(f"the session is there already, {'without a window' if window is None else f'window {window}'}")


class _Printer:
    """What is said on stdout. Once nobody reads that, the push ends with what it has read."""

    def __init__(self, stop: Stop, json: bool, separator: bytes) -> None:
        self.broken = False
        self._stop = stop
        self._json = json
        self._separator = separator.decode()

    def acknowledged(self, said: Acknowledgement) -> None:
        if self._json:
            self._write(json_.dumps(dataclasses.asdict(said)) + "\n")

    def undelivered(self, entries: list[str]) -> None:
        """In the form in which they came, so that they can be pushed again."""
        if self._json:
            self._write("".join(json_.dumps({"undelivered": entry}, ensure_ascii=False) + "\n" for entry in entries))
        elif terminal.on_terminal(sys.stdout):
            self._write("".join(terminal.shown(entry) + "\n" for entry in entries))
        else:
            self._write("".join(entry + self._separator for entry in entries))

    def _write(self, text: str) -> None:
        try:
            if not self.broken:
                terminal.write(text)
        except BrokenPipeError:
            self.broken = True
            self._stop.asked = True
