"""One run of the program: every error becomes a line on stderr and an exit code."""

from __future__ import annotations

import os
import re
import sys
from typing import Any, NoReturn

from typer.exceptions import Exit as TyperExit
from typer.exceptions import TyperException
from typer.main import get_command

from superfluid_cli import terminal
from superfluid_cli.app import app
from superfluid_cli.exits import CliError, Exit, OutputFailed

_PROGRAM = "superfluid"
_COMPLETING = "_SUPERFLUID_COMPLETE"


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code. No traceback reaches the user, whatever happens."""
    try:
        _never_refuse_a_character()
        code = _run(arguments)
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except BrokenPipeError:
        _drop_output()
        return Exit.PIPE
    except CliError as fault:
        if isinstance(fault, OutputFailed):
            _drop_output()
        terminal.complain(str(fault))
        return fault.code
    except KeyboardInterrupt:
        if terminal.on_terminal(sys.stderr):
            terminal.note("")
        return Exit.CANCELLED
    except OSError as fault:
        _drop_output()
        terminal.complain(_reason(fault))
        return Exit.FAILURE
    except Exception as fault:  # a bug: still one line; SUPERFLUID_TRACEBACK shows the rest
        if os.environ.get("SUPERFLUID_TRACEBACK"):
            raise
        terminal.complain(f"internal error: {type(fault).__name__}: {fault}")
        return Exit.FAILURE


def _run(arguments: list[str]) -> int:
    command = get_command(app)
    if os.environ.get(_COMPLETING):
        _complete(command, arguments)
    try:
        with command.make_context(_PROGRAM, arguments) as ctx:
            code = command.invoke(ctx)
    except TyperExit as leaving:
        return leaving.exit_code
    except TyperException as fault:
        terminal.complain(_usage(fault))
        return fault.exit_code
    return code if isinstance(code, int) else Exit.OK


def _complete(command: Any, arguments: list[str]) -> NoReturn:
    """Answer a shell that completes a line, or asks for the script that makes it do so."""
    from typer._completion_classes import completion_init

    completion_init()
    command.main(args=arguments, prog_name=_PROGRAM)
    raise AssertionError("completion ends the program")


def _usage(fault: TyperException) -> str:
    """What is wrong with the command line, and where its help is, in one line."""
    message = fault.format_message().rstrip(".")
    close = getattr(fault, "possibilities", None)
    if close:
        message = f"{fault.message}; did you mean {' or '.join(close)}?"
    if message.startswith("Got unexpected extra argument"):
        message += "; a text with spaces stands in quotes"
    ctx = getattr(fault, "ctx", None)
    if ctx is not None and _typed(ctx, getattr(fault, "param", None)):
        message = re.sub(r" \(env var: '\w+'\)", "", message, count=1)
    where = f" (see `{ctx.command_path} --help`)" if ctx is not None else ""
    return message[:1].lower() + message[1:] + where


def _typed(ctx: Any, param: Any) -> bool:
    """Whether a parameter stood on the command line: its environment variable is then beside the point."""
    source = ctx.get_parameter_source(param.name) if param is not None else None
    return source is not None and source.name == "COMMANDLINE"


def _reason(fault: OSError) -> str:
    reason = fault.strerror or str(fault) or type(fault).__name__
    return f"{fault.filename}: {reason}" if fault.filename else reason


def _never_refuse_a_character() -> None:
    """Text may hold what the locale's encoding lacks; a question mark is better than a crash in mid-reply."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")


def _drop_output() -> None:
    """Let the interpreter's last flush go nowhere: the reader of stdout has left."""
    try:
        descriptor = sys.stdout.fileno()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, descriptor)
        os.close(nowhere)
    except (AttributeError, OSError, ValueError):
        pass
