"""The root of the command line: what `superfluid` alone can say, and the table of its commands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import typer

from superfluid_cli import terminal
from superfluid_cli.exits import Exit
from superfluid_cli.lazy import Entry, LazyGroup, suggestion


class Root(LazyGroup):
    table: ClassVar[Mapping[str, Entry]] = {
        "serve": Entry("superfluid_cli.serve:serve"),
        "push": Entry("superfluid_cli.push.command:push"),
        "session": Entry("superfluid_cli.session:app"),
        "complete": Entry("superfluid_cli.complete:complete"),
        "status": Entry("superfluid_cli.status:status"),
        "top": Entry("superfluid_cli.top:top"),
        "stop": Entry("superfluid_cli.stop:stop"),
        "help": Entry("superfluid_cli.app:show_help"),
        "version": Entry("superfluid_cli.app:show_version"),
    }


app = typer.Typer(
    name="superfluid",
    cls=Root,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        show_version()
        raise typer.Exit(Exit.OK)


@app.callback(invoke_without_command=True)
def root(
    ctx: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", "-V", help="Print the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> int:
    """Durable, forkable conversations on a local language model."""
    if ctx.invoked_subcommand is None:
        return overview(ctx)
    return Exit.OK


def overview(ctx: typer.Context) -> int:
    """What a group without a command says: its help, on stderr."""
    terminal.note(ctx.get_help())
    return Exit.USAGE


def show_version() -> None:
    """Print the version."""
    from superfluid import __version__

    terminal.line(f"superfluid {__version__}")


def show_help(
    ctx: typer.Context,
    words: Annotated[
        list[str] | None, typer.Argument(metavar="COMMAND", help="A command, such as `session say`.")
    ] = None,
) -> None:
    """Print the help of a command."""
    assert ctx.parent is not None
    at: Any = ctx.parent
    for word in words or []:
        known = at.command.list_commands(at) if isinstance(at.command, LazyGroup) else []
        if word not in known:
            ctx.fail(f"no command {word!r}{suggestion(word, known)}")
        at = typer.Context(at.command.get_command(at, word), info_name=word, parent=at)
    terminal.line(at.get_help())
