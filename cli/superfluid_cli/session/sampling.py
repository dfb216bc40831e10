"""The sampling options of a new session."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from superfluid.protocol.records import GenParams
from superfluid_cli import values
from superfluid_cli.exits import UsageError

Temperature = Annotated[
    float | None,
    typer.Option(
        "--temperature",
        metavar="F",
        parser=values.fraction(0, 100),
        help="How freely to draw; 0 always takes the likeliest token. Default: 0.7.",
    ),
]
TopP = Annotated[
    float,
    typer.Option(
        "--top-p",
        metavar="F",
        parser=values.fraction(0, 1),
        help="Draw from the likeliest tokens that reach F together.",
        show_default=True,
    ),
]
MinP = Annotated[
    float,
    typer.Option(
        "--min-p",
        metavar="F",
        parser=values.fraction(0, 1),
        help="Leave out tokens less likely than F times the likeliest.",
        show_default=True,
    ),
]
TopK = Annotated[
    int,
    typer.Option(
        "--top-k",
        metavar="N",
        parser=values.whole(0, (1 << 31) - 1),
        help="Draw from the N likeliest tokens; 0 is all.",
        show_default=True,
    ),
]
Greedy = Annotated[bool, typer.Option("--greedy", help="The same as --temperature 0.")]


def sampling(
    temperature: float | None, top_p: float, min_p: float, top_k: int, seed: int | None, greedy: bool
) -> GenParams:
    """Sampling parameters; without a seed, a fresh one of 63 bits. Raises UsageError for a warm greed."""
    if greedy and temperature:
        raise UsageError(f"--greedy is temperature 0, but --temperature is {temperature:g}")
    if temperature is None:
        temperature = 0.0 if greedy else 0.7
    if seed is None:
        seed = int.from_bytes(os.urandom(8), "little") >> 1
    return GenParams(temperature, top_p, min_p, top_k, seed)
