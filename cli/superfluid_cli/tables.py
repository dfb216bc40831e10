"""Rows as a Rich table on a terminal, tab-separated without a heading anywhere else."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from superfluid_cli import terminal

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def console() -> Console:
    """Rich on stdout, without markup: session text may hold brackets."""
    from rich.console import Console

    return Console(
        file=sys.stdout,
        markup=False,
        highlight=False,
        emoji=False,
        color_system="auto" if terminal.colourful(sys.stdout) else None,
    )


def show_table(headings: Sequence[str], rows: Sequence[Sequence[str]], flexible: Sequence[str] = ()) -> None:
    """Print `rows`; `flexible` names the columns that give way where the terminal is narrow."""
    if not terminal.on_terminal(sys.stdout):
        terminal.lines(["\t".join(terminal.shown(cell) for cell in row) for row in rows])
        return
    console().print(rich_table(headings, rows, flexible))


def show_facts(facts: Sequence[tuple[str, str]]) -> None:
    """Print names and values."""
    if not terminal.on_terminal(sys.stdout):
        terminal.lines([f"{name}\t{terminal.shown(value)}" for name, value in facts])
        return
    console().print(rich_facts(facts))


def rich_table(headings: Sequence[str], rows: Sequence[Sequence[str]], flexible: Sequence[str] = ()) -> Table:
    """`rows` for a terminal; columns of numbers stand to the right. What is not `flexible` is never cut."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    numeric = [all(row[place].isdigit() or not row[place] for row in rows) for place in range(len(headings))]
    cells = [[Text(terminal.shown(cell)) for cell in row] for row in rows]
    for place, (heading, number) in enumerate(zip(headings, numeric, strict=True)):
        gives_way = heading in flexible
        table.add_column(
            heading,
            justify="right" if number and rows else "left",
            no_wrap=not gives_way,
            overflow="fold",
            min_width=len(heading) if gives_way else max(len(heading), *(row[place].cell_len for row in cells), 0),
        )
    for row in cells:
        table.add_row(*row)
    return table


def rich_facts(facts: Sequence[tuple[str, str]]) -> Table:
    """Names and values for a terminal."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts:
        table.add_row(Text(name, style="dim"), Text(terminal.shown(value)))
    return table
