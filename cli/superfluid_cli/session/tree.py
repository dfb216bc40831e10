"""`superfluid session tree`"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from superfluid.protocol import requests, responses
from superfluid_cli import options, tables, terminal


def tree(json: options.Json = False, socket: options.Socket = None) -> None:
    """Show which session was forked from which. In a pipe: id, parent, fork point, title."""
    with options.connect(socket) as client:
        nodes = client.ask(requests.Tree(), responses.Tree).nodes
        known = client.ask(requests.Sessions(include_archived=True), responses.SessionList).sessions
    titles = {entry.id: entry.title or "" for entry in known}
    if json:
        from superfluid.protocol import jsonform

        terminal.lines([jsonform.dumps(responses.Node, node) for node in nodes])
    elif terminal.on_terminal(sys.stdout):
        _draw(nodes, titles)
    else:
        terminal.lines(
            [
                "\t".join(
                    (str(id_), "" if parent is None else str(parent), str(at), terminal.shown(titles.get(id_, "")))
                )
                for id_, parent, at in nodes
            ]
        )


def _draw(nodes: Sequence[responses.Node], titles: dict[int, str]) -> None:
    """Roots are sessions without a parent, and those whose parent is not in the tree: archived ones are left out."""
    from rich.text import Text
    from rich.tree import Tree

    top = Tree("", hide_root=True)
    branches = {id_: Tree(Text(_label(id_, parent, at, titles))) for id_, parent, at in nodes}
    for id_, parent, _ in nodes:
        above = branches[parent] if parent is not None and parent in branches and parent != id_ else top
        above.children.append(branches[id_])
    tables.console().print(top)


def _label(id_: int, parent: int | None, at: int, titles: dict[int, str]) -> str:
    origin = f"  (from {parent} at event {at})" if parent is not None else ""
    title = terminal.shown(titles.get(id_, ""))
    return f"{id_}{'  ' + title if title else ''}{origin}"
