"""`superfluid session say`, `generate`, `cancel`"""

from __future__ import annotations

from superfluid.protocol import requests, responses
from superfluid.protocol.codes import Role
from superfluid_cli import options, terminal
from superfluid_cli.exits import ServerSaid
from superfluid_cli.message import message
from superfluid_cli.reply import stream_reply


def say(
    session: options.Session,
    text: options.Text = None,
    file: options.File = None,
    max_tokens: options.MaxTokens = 1024,
    socket: options.Socket = None,
) -> int:
    """Say something as the user and print the reply as it comes. Ctrl-C stops the reply."""
    words = message(text, file)
    with options.reach(session, socket) as (client, id_):
        kept = client.ask(requests.AppendMessage(id_, Role.USER, words), responses.Committed).event.event_id
        try:
            return stream_reply(client, id_, max_tokens)
        except ServerSaid:
            terminal.note(
                f"the message is kept as event {kept}; `superfluid session trim {session} --to {kept}` leaves it out"
            )
            raise


def generate(session: options.Session, max_tokens: options.MaxTokens = 1024, socket: options.Socket = None) -> int:
    """Continue a reply that was cut, or answer what was appended. Ctrl-C stops the reply."""
    with options.reach(session, socket) as (client, id_):
        return stream_reply(client, id_, max_tokens)


def cancel(session: options.Session, socket: options.Socket = None) -> None:
    """Stop the reply that a session generates, or the answer to a question about it."""
    with options.reach(session, socket) as (client, id_):
        client.ask(requests.Cancel(id_), responses.Cancelling)
