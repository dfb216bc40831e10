"""Write the man pages and the completion scripts from the command line itself, or check that they are up to date.

    python man/generate.py            # write them
    python man/generate.py --check    # print a diff and fail where one is stale

The text depends on nothing but the program: not on the day, nor on the width of the terminal, nor on the environment.
Only calls of Typer are used that its own `typer utils docs` relies on.
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from typer._completion_shared import get_completion_script
from typer.main import get_command

from superfluid import __version__
from superfluid_cli.app import app
from superfluid_cli.exits import Exit
from superfluid_cli.lazy import summary

ROOT = Path(__file__).parents[1]
PROGRAM = "superfluid"
SHELLS = ("bash", "zsh", "fish")
WITHOUT_PAGE = ("help", "version")
"""Commands that the main page says enough about."""

EXITS = {
    Exit.OK: "Done.",
    Exit.FAILURE: "The command failed; one line on stderr says why.",
    Exit.USAGE: "The command line makes no sense.",
    Exit.NO_DAEMON: "No daemon answers at the socket.",
    Exit.NO_SESSION: "There is no such session, or it was purged.",
    Exit.CANCELLED: "Ctrl-C.",
    Exit.PIPE: "The reader of stdout went away.",
}
ENVIRONMENT = {
    "SUPERFLUID_HOME": "Where the socket and the sessions are by default; ~/.superfluid where it is not set.",
    "SUPERFLUID_<OPTION>": "Stands for the option of that name where its description says so; an option wins.",
    "SUPERFLUID_TRACEBACK": "Where set, an internal error shows its traceback.",
    "NO_COLOR": "Where set, nothing is coloured.",
}
FILES = {
    "~/.superfluid/superfluid.sock": "The daemon's socket.",
    "~/.superfluid/sessions": "One database a model, and the daemon's log in logs/serve.log.",
    "~/.superfluid/sessions/web-token": "What requests to --web show; another one at every start.",
}


def generated() -> dict[Path, str]:
    """Every generated file, by its path in the repository."""
    files = {Path("man") / f"{name}.1": page for name, page in pages()}
    for shell in SHELLS:
        script = get_completion_script(prog_name=PROGRAM, complete_var=f"_{PROGRAM.upper()}_COMPLETE", shell=shell)
        files[Path("completions") / f"{PROGRAM}.{shell}"] = script + "\n"
    return files


# --- pages --------------------------------------------------------------------------------------------------------


def pages() -> Iterator[tuple[str, str]]:
    """Name and text of each page: one for the program, one for each of its commands that has options of its own."""
    root = get_command(app)
    ctx = typer.Context(root, info_name=PROGRAM, **root.context_settings)
    commands = list(_commands(root, ctx))
    paged = [name for name, _, _ in commands if name not in WITHOUT_PAGE]
    yield PROGRAM, _page(PROGRAM, root, ctx, [f"{PROGRAM}-{name}" for name in paged])
    for name, command, below in commands:
        if name in paged:
            others = [f"{PROGRAM}-{other}" for other in paged if other != name]
            yield f"{PROGRAM}-{name}", _page(f"{PROGRAM} {name}", command, below, [PROGRAM, *others])


def _page(called: str, command: Any, ctx: typer.Context, others: list[str]) -> str:
    """One page; the commands of a group have their own sections in it, those of the program their own pages."""
    name = called.replace(" ", "-")
    about = summary(command.help).removesuffix(".")
    lines = [
        ".\\\" Written by man/generate.py; change the program's own help instead.",
        f'.TH {_quoted(name.upper())} 1 "" {_quoted(f"{PROGRAM} {__version__}")} "User Commands"',
        ".SH NAME",
        f"{_text(name)} \\- {_text(about[:1].lower() + about[1:])}",
        ".SH SYNOPSIS",
        *_synopsis(called, command, ctx),
        ".SH DESCRIPTION",
        *_paragraphs(command.help),
    ]
    arguments, options = _parameters(command, ctx)
    lines += _listed(".SH ARGUMENTS", arguments) + _listed(".SH OPTIONS", options)
    below = list(_commands(command, ctx))
    if called == PROGRAM:
        listed = [(f"{word} {' '.join(_usage(it, at))}".strip(), it.help) for word, it, at in below]
        lines += _listed(".SH COMMANDS", [(usage, summary(help_)) for usage, help_ in listed])
    elif below:
        lines.append(".SH COMMANDS")
        for word, it, at in _leaves(below):
            lines += [f".SS {_quoted(f'{called} {word}')}", *_synopsis(f"{called} {word}", it, at)]
            lines += [".PP", *_paragraphs(it.help)]
            for heading, records in zip(("Arguments:", "Options:"), _parameters(it, at), strict=True):
                lines += _listed(f".PP\n{heading}", records)
    lines += _listed(".SH EXIT STATUS", [(str(int(code)), EXITS[code]) for code in Exit])
    if called == PROGRAM:
        lines += _listed(".SH ENVIRONMENT", list(ENVIRONMENT.items())) + _listed(".SH FILES", list(FILES.items()))
    lines += [".SH SEE ALSO", ",\n".join(f".BR {_text(other)} (1)" for other in others)]
    return "\n".join(lines) + "\n"


def _commands(command: Any, ctx: typer.Context) -> Iterator[tuple[str, Any, typer.Context]]:
    """Name, command and context of what a group shows; nothing for a command that is no group."""
    if not hasattr(command, "list_commands"):
        return
    for name in command.list_commands(ctx):
        below = command.get_command(ctx, name)
        if not below.hidden:
            yield name, below, typer.Context(below, info_name=name, parent=ctx)


def _leaves(commands: list[tuple[str, Any, typer.Context]]) -> Iterator[tuple[str, Any, typer.Context]]:
    """The commands that do something, those of groups below with the group's name before theirs."""
    for word, it, at in commands:
        below = [(f"{word} {name}", command, ctx) for name, command, ctx in _commands(it, at)]
        if below:
            yield from _leaves(below)
        else:
            yield word, it, at


def _usage(command: Any, ctx: typer.Context) -> list[str]:
    return list(command.collect_usage_pieces(ctx))


def _synopsis(called: str, command: Any, ctx: typer.Context) -> list[str]:
    return [f"\\fB{_text(called)}\\fR {_text(' '.join(_usage(command, ctx)))}"]


def _parameters(command: Any, ctx: typer.Context) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Arguments and options, as the help has them."""
    arguments: list[tuple[str, str]] = []
    options: list[tuple[str, str]] = []
    for param in command.get_params(ctx):
        record = param.get_help_record(ctx)
        if record is not None:
            (arguments if param.param_type_name == "argument" else options).append(record)
    return arguments, options


# --- roff ---------------------------------------------------------------------------------------------------------

_SPECIAL = {"\\": "\\e", "-": "\\-", "'": "\\(aq", '"': "\\(dq", "`": "\\(ga", "^": "\\(ha", "~": "\\(ti"}


def _text(text: str) -> str:
    """Words as roff prints them, `code` in bold."""
    pieces = []
    for place, piece in enumerate(re.split(r"`([^`]*)`", " ".join(text.split()))):
        escaped = "".join(_SPECIAL.get(char, char if char.isascii() else f"\\[u{ord(char):04X}]") for char in piece)
        pieces.append(f"\\fB{escaped}\\fR" if place % 2 else escaped)
    line = "".join(pieces)
    return f"\\&{line}" if line.startswith(".") else line


def _quoted(text: str) -> str:
    """One argument of a macro."""
    return f'"{_text(text)}"'


def _paragraphs(help_: str | None) -> list[str]:
    paragraphs = re.split(r"\n\s*\n", (help_ or "").strip())
    return "\n.PP\n".join(map(_text, paragraphs)).split("\n")


def _listed(heading: str, records: list[tuple[str, str]]) -> list[str]:
    """A heading and names with what is to say about them; nothing where there are none."""
    lines = [heading] if records else []
    for name, about in records:
        lines += [".TP", f"\\fB{_text(name)}\\fR", _text(about) or "\\&"]
    return lines


# --- files --------------------------------------------------------------------------------------------------------


def stale(files: dict[Path, str], root: Path = ROOT) -> Iterator[str]:
    """What would change, as a unified diff a file; files that nothing generates any more are to go."""
    for path, wanted in files.items():
        there = (root / path).read_text() if (root / path).exists() else ""
        if there != wanted:
            yield "".join(
                difflib.unified_diff(
                    there.splitlines(keepends=True), wanted.splitlines(keepends=True), str(path), "generated"
                )
            )
    for path in _left_over(files, root):
        yield f"{path}: nothing generates it\n"


def _left_over(files: dict[Path, str], root: Path) -> list[Path]:
    there = [*root.glob("man/*.1"), *root.glob(f"completions/{PROGRAM}.*")]
    return sorted(path for found in there if (path := found.relative_to(root)) not in files)


def write(files: dict[Path, str], root: Path = ROOT) -> None:
    for path, text in files.items():
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).write_text(text)
    for path in _left_over(files, root):
        (root / path).unlink()


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--check"]):
        print("usage: python man/generate.py [--check]", file=sys.stderr)
        return 2
    files = generated()
    if not arguments:
        write(files)
        return 0
    diffs = list(stale(files))
    sys.stdout.write("".join(diffs))
    if diffs:
        print("run `python man/generate.py` to write them anew", file=sys.stderr)
    return 1 if diffs else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
