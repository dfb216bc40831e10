"""`superfluid session`: make, read, continue, branch and remove sessions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import typer

from superfluid_cli.app import overview
from superfluid_cli.exits import Exit
from superfluid_cli.lazy import Entry, LazyGroup

_HERE = "superfluid_cli.session"


class SessionGroup(LazyGroup):
    table: ClassVar[Mapping[str, Entry]] = {
        "new": Entry(f"{_HERE}.new:new"),
        "list": Entry(f"{_HERE}.listing:list_sessions"),
        "tree": Entry(f"{_HERE}.tree:tree"),
        "show": Entry(f"{_HERE}.show:show"),
        "inspect": Entry(f"{_HERE}.show:show", hidden=True),
        "read": Entry(f"{_HERE}.read:read"),
        "watch": Entry(f"{_HERE}.watch:watch"),
        "say": Entry(f"{_HERE}.say:say"),
        "chat": Entry(f"{_HERE}.chat:chat"),
        "generate": Entry(f"{_HERE}.say:generate"),
        "cancel": Entry(f"{_HERE}.say:cancel"),
        "ask": Entry(f"{_HERE}.ask:ask"),
        "open": Entry(f"{_HERE}.feed:open_"),
        "name": Entry(f"{_HERE}.feed:name"),
        "feed": Entry(f"{_HERE}.feed:feed"),
        "events": Entry(f"{_HERE}.news:events"),
        "flash": Entry(f"{_HERE}.flash:app"),
        "append": Entry(f"{_HERE}.append:append"),
        "block": Entry(f"{_HERE}.block:block"),
        "tools": Entry(f"{_HERE}.tools:tools"),
        "ledger": Entry(f"{_HERE}.tools:ledger"),
        "result": Entry(f"{_HERE}.tools:result"),
        "outcome": Entry(f"{_HERE}.tools:outcome"),
        "cancel-call": Entry(f"{_HERE}.tools:cancel_call"),
        "ask-permission": Entry(f"{_HERE}.permission:ask_permission"),
        "permit": Entry(f"{_HERE}.permission:permit"),
        "fork": Entry(f"{_HERE}.branch:fork"),
        "trim": Entry(f"{_HERE}.branch:trim"),
        "edit": Entry(f"{_HERE}.branch:edit"),
        "rebase": Entry(f"{_HERE}.branch:rebase"),
        "rename": Entry(f"{_HERE}.meta:rename"),
        "archive": Entry(f"{_HERE}.meta:archive"),
        "unarchive": Entry(f"{_HERE}.meta:unarchive"),
        "export": Entry(f"{_HERE}.export:export"),
        "purge": Entry(f"{_HERE}.purge:purge"),
        "qos": Entry(f"{_HERE}.qos:qos"),
        "pin": Entry(f"{_HERE}.pin:pin"),
        "unpin": Entry(f"{_HERE}.pin:unpin"),
        "background-rate": Entry(f"{_HERE}.qos:background_rate"),
        "check": Entry(f"{_HERE}.check:check"),
    }


app = typer.Typer(cls=SessionGroup, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.callback(invoke_without_command=True)
def session(ctx: typer.Context) -> int:
    """Work with sessions: make, read, continue, branch and remove them."""
    if ctx.invoked_subcommand is None:
        return overview(ctx)
    return Exit.OK
