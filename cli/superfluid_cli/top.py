"""`superfluid top`: the daemon's status, again and again, until a key says otherwise."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from superfluid.protocol import requests, responses
from superfluid_cli import options, places, tables, terminal, values
from superfluid_cli.client import Client
from superfluid_cli.exits import CliError, Exit, NoDaemon, UsageError
from superfluid_cli.status import HEADINGS, facts, lanes

if TYPE_CHECKING:
    from rich.console import RenderableType

PATIENCE = 2.0
"""Seconds for one answer, during which no key is heard."""

Interval = Annotated[
    float,
    typer.Option(
        "--interval", metavar="TIME", parser=values.duration, help="How often to ask: 1, 0.5s.", show_default=True
    ),
]


def top(interval: Interval = 1.0, socket: options.Socket = None) -> int:
    """Watch what the daemon is doing, on a terminal; one that restarts is found again. q, Esc or Ctrl-C leaves."""
    if not terminal.on_terminal(sys.stdout) or os.environ.get("TERM") == "dumb":
        raise UsageError("top needs a terminal to draw on; `superfluid status` prints the same once")
    from rich.live import Live

    from superfluid_cli.keys import Keys

    source = _Source(socket if socket is not None else places.default_socket())
    live = Live(console=tables.console(), screen=True, auto_refresh=False)
    try:
        with _hanging_up_is_ctrl_c(), Keys() as keys, live:
            while True:
                live.update(_screen(source.look()), refresh=True)
                if _leaves(keys.pressed(interval)):
                    return Exit.OK
    except KeyboardInterrupt:
        return Exit.OK
    finally:
        source.close()


def _leaves(pressed: bytes) -> bool:
    """Whether q, Ctrl-D or Esc was pressed, the last one alone: other keys begin with it."""
    return pressed == b"\x1b" or any(key in pressed for key in (b"q", b"Q", b"\x04"))


@contextmanager
def _hanging_up_is_ctrl_c() -> Iterator[None]:
    """SIGTERM and SIGHUP end the loop as SIGINT does, so that the terminal gets its old face back."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, signal.default_int_handler) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


class _Source:
    """The daemon at one socket, whichever it is at the time: one connection while that lasts, then a new one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._client: Client | None = None

    def look(self) -> responses.StatusReport | str:
        """The daemon's report, or why there is none."""
        try:
            if self._client is None:
                self._client = Client(self._path, PATIENCE)
            return self._client.ask(requests.Status(), responses.StatusReport)
        except NoDaemon:
            self.close()
            return f"no daemon at {self._path}; waiting for one"
        except CliError as fault:
            self.close()
            return str(fault)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None


def _screen(seen: responses.StatusReport | str) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    blank, footer = Text(""), Text("q leaves", style="dim")
    if isinstance(seen, str):
        return Group(Text(terminal.shown(seen)), blank, footer)
    return Group(tables.rich_facts(facts(seen)), blank, tables.rich_table(HEADINGS, lanes(seen)), blank, footer)
