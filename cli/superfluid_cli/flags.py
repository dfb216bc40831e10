"""Options of `serve`, each with an environment variable of its name."""

from __future__ import annotations

from typing import Any

import typer


def option(
    flag: str,
    *aliases: str,
    help: str,
    metavar: str = "N",
    parser: Any = None,
    default: str | bool = False,
) -> Any:
    """An option with its environment variable, `SUPERFLUID_<FLAG>`; `default` is what the help says it is."""
    return typer.Option(
        flag,
        *aliases,
        help=help,
        metavar=metavar if parser is not None else None,
        parser=parser,
        envvar="SUPERFLUID_" + flag.partition("/")[0].removeprefix("--").replace("-", "_").upper(),
        show_envvar=True,
        show_default=default,
    )
