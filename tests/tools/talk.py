"""Words for talking to a daemon about tools."""

from __future__ import annotations

import json

import pytest

from superfluid.protocol import records, requests, responses
from superfluid.protocol.codes import Channel
from superfluid.protocol.records import Event, GenParams
from superfluid_cli.client import Client, ServerSaid
from tests.support.daemon import GREEDY, create, generate, say

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather there",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def declare(client: Client, session: int, *tools: object, text: str | None = "You may use tools.") -> Event:
    declared = tuple(json.dumps(tool) for tool in tools or (WEATHER,))
    return client.ask(requests.AppendSystem(session, text, declared), responses.Committed).event


def asked(client: Client, question: str, params: GenParams = GREEDY) -> int:
    """A session with tools and a question."""
    session = create(client, params)
    declare(client, session)
    say(client, session, question)
    return session


def called(client: Client, question: str, most: int = 500) -> tuple[int, list[int]]:
    """A session in which the model has answered a question, and the ids of the calls it made."""
    session = asked(client, question)
    return session, calls_in(generate(client, session, most).events)


def calls_in(events) -> list[int]:
    return [event.event_id for event in events if isinstance(event.body, records.ToolUse)]


def err(client: Client, request) -> str:
    """What the daemon says instead of doing it."""
    with pytest.raises(ServerSaid) as caught:
        _do(client, request)
    return str(caught.value)


def _do(client: Client, request) -> None:
    if isinstance(request, requests.Generate):
        generate(client, request.session, request.max_tokens)
    else:
        client.call(request)


def commit(client: Client, request) -> Event:
    return client.ask(request, responses.Committed).event


def result(client: Client, session: int, call_id: int, content: str) -> Event:
    return commit(client, requests.AppendToolResult(session, call_id, content))


def events_of(client: Client, session: int, cursor: int = 0) -> tuple[Event, ...]:
    return client.ask(requests.Read(session, cursor), responses.Events).events


def bodies_of(client: Client, session: int, cursor: int = 0) -> list[records.EventBody]:
    return [event.body for event in events_of(client, session, cursor)]


def ledger(client: Client, session: int) -> dict[int, responses.LedgerEntry]:
    return dict(client.ask(requests.Ledger(session), responses.Ledger).entries)


def open_calls(client: Client, session: int) -> list[int]:
    return [call_id for call_id, _, _ in client.ask(requests.OpenToolCalls(session), responses.ToolCalls).calls]


def text_of(bodies, channel: int = Channel.TEXT) -> str:
    """The text of the generated records of one channel."""
    return "".join(body.text for body in bodies if isinstance(body, records.Generated) and body.channel == channel)


def outline(bodies) -> list[object]:
    """Records in short: neighbouring `Generated` of one channel as one letter, others by name."""
    letters: list[object] = []
    for body in bodies:
        name = "tRc"[body.channel] if isinstance(body, records.Generated) else type(body).__name__
        if len(name) > 1 or letters[-1:] != [name]:
            letters.append(name)
    return letters
