"""`superfluid session qos`, `background-rate`"""

from __future__ import annotations

from typing import Annotated

import typer

from superfluid.protocol import requests, responses
from superfluid_cli import options, values

Class = Annotated[
    int,
    typer.Argument(
        metavar="CLASS", parser=values.qos, help="interactive, completion, agent or background; also 0 to 3."
    ),
]
BatchInvariant = Annotated[
    bool, typer.Option("--batch-invariant", help="Draw the same tokens whatever runs beside it.")
]
Divisor = Annotated[
    int, typer.Argument(metavar="N", parser=values.whole(1, (1 << 32) - 1), help="1 is every tick, the default.")
]


def qos(
    session: options.Session,
    class_: Class,
    batch_invariant: BatchInvariant = False,
    socket: options.Socket = None,
) -> None:
    """Set the scheduling class of a session, from its next reply on."""
    with options.reach(session, socket) as (client, id_):
        client.ask(requests.SetQos(id_, class_, batch_invariant), responses.Committed)


def background_rate(divisor: Divisor, socket: options.Socket = None) -> None:
    """Let sessions of the classes agent and background draw in one tick of N only, until the daemon ends."""
    with options.connect(socket) as client:
        client.ask(requests.SetBackgroundRate(divisor), responses.Ack)
