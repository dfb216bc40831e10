"""A reply on its way from the daemon to the screen."""

from __future__ import annotations

import sys

from superfluid.protocol import records, responses
from superfluid.protocol.codes import Channel, Finish
from superfluid_cli import terminal
from superfluid_cli.client import Client
from superfluid_cli.counting import counted
from superfluid_cli.exits import Exit
from superfluid_cli.interrupt import StopsReply
from superfluid_cli.waiting import Sign

_ENDINGS = {
    Finish.OPEN: "open",
    Finish.END_OF_TURN: "end of turn",
    Finish.LENGTH: "cut at the token limit",
    Finish.GRAMMAR: "grammar complete",
    Finish.CANCELLED: "cancelled",
    Finish.ERROR: "failed",
}


def ending(finish: int) -> str:
    """A finish code in words."""
    return _ENDINGS.get(Finish(finish), str(finish)) if finish in list(Finish) else str(finish)


def stream_reply(client: Client, session: int, max_tokens: int) -> Exit:
    """Generate a turn and put its text on stdout as it comes, the rest on stderr where a person watches.

    Ctrl-C stops the generation; what came stays printed, and the result is CANCELLED. So it is where others stop it.
    """
    screen = _Screen(Sign(client))
    finish: int = Finish.OPEN
    with StopsReply(client, session) as stop:
        try:
            for reply in client.generate(session, max_tokens):
                if isinstance(reply, responses.Delta):
                    screen.show(reply.event)
                else:
                    screen.end()
                    screen.summary(reply, session)
                    finish = reply.finish
        except (KeyboardInterrupt, Exception):
            screen.end()
            raise
    if finish == Finish.CANCELLED and not stop.interrupted:
        terminal.note("the reply was cancelled")
    return Exit.CANCELLED if stop.interrupted or finish == Finish.CANCELLED else Exit.OK


class _Screen:
    def __init__(self, sign: Sign) -> None:
        self._sign = sign
        self._raw = not terminal.on_terminal(sys.stdout)
        self._watched = terminal.on_terminal(sys.stderr)
        self._open_line = False
        self._open_thought = False

    def show(self, event: records.Event) -> None:
        self._sign.clear()
        match event.body:
            case records.Generated(text=text, channel=Channel.TEXT) if text:
                self._end_thought()
                self._open_line = not text.endswith("\n")  # first: Ctrl-C may come right after the write
                terminal.write(text if self._raw else terminal.safe(text))
            case records.Generated(text=text, channel=Channel.REASONING) if text and self._watched:
                assert sys.stderr is not None
                sys.stderr.write(terminal.dim(terminal.safe(text), sys.stderr))
                sys.stderr.flush()
                self._open_thought = not text.endswith("\n")
            case records.ToolUse(name=name, arguments=arguments):
                self.end()
                terminal.note(f"tool call {event.event_id}: {terminal.shown(name)} {terminal.shown(arguments)}")
            case records.ToolParseFailure(raw=raw):
                self.end()
                terminal.note(f"a tool call that does not parse: {terminal.shown(raw)}")

    def end(self) -> None:
        """Finish the line that is open."""
        self._sign.clear()
        self._end_thought()
        if self._open_line:
            self._open_line = False
            terminal.write("\n")

    def summary(self, reply: responses.Generated, session: int) -> None:
        if self._watched:
            text = f"{counted(reply.tokens_generated, 'token')}, {reply.warm_prefix} warm, {ending(reply.finish)}"
            if reply.finish == Finish.LENGTH:
                text += f"; `superfluid session generate {session}` goes on"
            terminal.note(terminal.dim(text, sys.stderr))

    def _end_thought(self) -> None:
        if self._open_thought:
            self._open_thought = False
            terminal.note("")
