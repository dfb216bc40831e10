"""Options of `serve` that are about fill-in-the-middle completions."""

from __future__ import annotations

from typing import Annotated

from superfluid_cli import values
from superfluid_cli.flags import option

LEAST_RATE = 0.001


def rate(text: str) -> float:
    """Completions a second; 0 is without bound."""
    number = values.fraction(0, None)(text)
    if 0 < number < LEAST_RATE:
        raise ValueError(f"expected 0, or a number from {LEAST_RATE:g} up, got {text!r}")
    return number


Rate = Annotated[
    float,
    option(
        "--completion-rate",
        metavar="F",
        parser=rate,
        help="Completions a second for each connection, and for all of /web/rpc together; 0 is without bound.",
        default="10",
    ),
]
Burst = Annotated[
    float,
    option(
        "--completion-burst",
        metavar="F",
        parser=values.fraction(1, None),
        help="Completions at once, before that rate counts.",
        default="20",
    ),
]
Deadline = Annotated[
    int,
    option(
        "--completion-deadline-ms",
        "--request-timeout",
        parser=values.whole(0, (1 << 32) - 1),
        help="Milliseconds after which a completion ends with what there is; 0 is as long as it takes.",
        default="0",
    ),
]
