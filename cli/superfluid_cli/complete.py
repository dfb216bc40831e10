"""`superfluid complete`"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from superfluid.protocol import requests, responses
from superfluid.protocol.codes import FimMode
from superfluid_cli import options, terminal, values
from superfluid_cli.exits import CliError, Exit, UsageError
from superfluid_cli.message import given

Prefix = Annotated[
    str | None,
    typer.Argument(metavar="PREFIX", help="The text before the gap; read from stdin when absent or `-`."),
]
Suffix = Annotated[
    str | None, typer.Argument(metavar="SUFFIX", help="The text after it; `-` reads it from stdin. Default: none.")
]
PrefixFile = Annotated[
    Path | None,
    typer.Option("--prefix-file", metavar="FILE", parser=values.path, help="Read the text before the gap from FILE."),
]
SuffixFile = Annotated[
    Path | None,
    typer.Option("--suffix-file", metavar="FILE", parser=values.path, help="Read the text after the gap from FILE."),
]
Spm = Annotated[bool, typer.Option("--spm", help="Put the suffix first in the prompt, as some models want it.")]


def complete(
    prefix: Prefix = None,
    suffix: Suffix = None,
    prefix_file: PrefixFile = None,
    suffix_file: SuffixFile = None,
    spm: Spm = False,
    max_tokens: options.MaxTokens = 128,
    json: options.Json = False,
    socket: options.Socket = None,
) -> Exit:
    """Print what the model puts between two texts (fill-in-the-middle). Nothing of it is kept in a session.

    The middle is printed as it is, in a pipe without a newline after it. Exits with 1 where the daemon's deadline
    came first, and prints nothing then. Ctrl-C stops it.
    """
    before, after = _texts(prefix, prefix_file, suffix, suffix_file)
    request = requests.Complete(before, after, FimMode.SPM if spm else FimMode.PSM, max_tokens)
    with options.connect(socket) as client:
        reply = client.complete(request)
    if isinstance(reply, responses.Throttled):
        raise CliError(f"too many completions; try again in {reply.retry_after_ms} ms")
    if json:
        from superfluid.protocol import jsonform

        terminal.line(jsonform.dumps(responses.Completion, reply))
    elif terminal.on_terminal(sys.stdout):
        terminal.line(terminal.safe(reply.text))
    else:
        terminal.write(reply.text)
    if reply.expired:
        terminal.note("the daemon's deadline came before the completion's end")
        return Exit.FAILURE
    return Exit.OK


def _texts(
    prefix: str | None, prefix_file: Path | None, suffix: str | None, suffix_file: Path | None
) -> tuple[str, str]:
    """Both texts; at most one of them comes from stdin."""
    if prefix_file is not None and suffix is None and suffix_file is None and prefix is not None:
        prefix, suffix = None, prefix  # one text beside the prefix's file is the suffix
    if suffix == "-" and prefix_file is None and prefix in (None, "-"):
        raise UsageError("PREFIX and SUFFIX cannot both come from stdin")
    after = "" if suffix is None and suffix_file is None else given(suffix, suffix_file, "SUFFIX", "--suffix-file")
    before = given(prefix, prefix_file, "PREFIX", "--prefix-file")
    if not before and not after:
        raise UsageError("both texts are empty")
    return before, after
