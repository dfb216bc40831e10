"""`superfluid session chat`"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from superfluid.protocol import requests, responses
from superfluid.protocol.codes import Role
from superfluid_cli import options, terminal, values
from superfluid_cli.exits import ConnectionBroken, Exit, NoDaemon, ServerSaid, UsageError
from superfluid_cli.message import message
from superfluid_cli.reply import stream_reply
from superfluid_cli.session import sampling
from superfluid_cli.session.new import System, create

_PROMPT = "> "


def chat(
    session: Annotated[
        values.IdOrName | None,
        typer.Argument(
            metavar="ID",
            parser=values.session_ref,
            help="The session. Default: a new one.",
            autocompletion=options.known_sessions,
        ),
    ] = None,
    system: System = None,
    max_tokens: options.MaxTokens = 1024,
    socket: options.Socket = None,
) -> None:
    """Talk with the model, line by line. Ctrl-C stops a reply; Ctrl-D or /quit leaves; the session stays."""
    if system is not None and session is not None:
        raise UsageError("--system opens a new session; session ID has its own beginning")
    if sys.stdin is None:
        raise UsageError("chat reads stdin, which is closed")
    opening = message(system, None) if system is not None else None
    lines = _Lines()
    with options.connect(socket) as client:
        if session is None:
            id_ = create(client, sampling.sampling(None, 0.95, 0.0, 0, None, False), opening)
        else:
            id_ = client.id_of(session)
            client.summary(id_)
    terminal.note(f"session {id_}; Ctrl-C stops a reply, Ctrl-D or /quit leaves")
    try:
        while (line := lines.next()) is not None:
            if line.strip():
                _turn(id_, line, max_tokens, socket)
    except (ConnectionBroken, NoDaemon):
        terminal.note(f"`superfluid session chat {session or id_}` goes on with it once the daemon is back")
        raise
    terminal.note(f"`superfluid session chat {session or id_}` goes on with it")


def _turn(session: int, line: str, max_tokens: int, socket: Path | None) -> None:
    """One message and its reply, on a connection of its own: a reply broken off leaves nothing behind in it.

    What the daemon refuses is said and the chat goes on, unless the session is gone.
    """
    try:
        with options.connect(socket) as client:
            client.ask(requests.AppendMessage(session, Role.USER, line), responses.Committed)
            stream_reply(client, session, max_tokens)
    except KeyboardInterrupt:
        terminal.note("")
    except ServerSaid as refusal:
        if refusal.code is Exit.NO_SESSION:
            raise
        terminal.complain(str(refusal))


class _Lines:
    """What the user types. The history lives in memory only: it is text of a session."""

    def __init__(self) -> None:
        self._asks = terminal.on_terminal(sys.stdin) and terminal.on_terminal(sys.stdout)
        if self._asks:
            import readline

            readline.set_auto_history(True)

    def next(self) -> str | None:
        """The next line, None at the end. Ctrl-C gives up the line that was begun."""
        while True:
            try:
                line = input(_PROMPT) if self._asks else _plain_line()
            except EOFError:
                if self._asks:
                    terminal.note("")
                return None
            except KeyboardInterrupt:
                if not self._asks:
                    raise
                terminal.note("")
                continue
            return None if line.strip() == "/quit" else line


def _plain_line() -> str:
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.removesuffix("\n")
