"""The agent loop over the socket: declare, ask, call, answer, go on (wire-facts 8.8 and 8.16)."""

import itertools
import json

from superfluid.protocol import records, requests, responses
from superfluid.protocol.records import span_of
from tests.support.daemon import create, generate, say, tokens_of
from tests.tools.conftest import DEEP
from tests.tools.talk import (
    asked,
    bodies_of,
    called,
    calls_in,
    err,
    events_of,
    ledger,
    open_calls,
    outline,
    result,
    text_of,
)

COMPACT = json.dumps(DEEP, ensure_ascii=False, separators=(",", ":"))
KIND = {0: "t", 1: "R", 2: "c"}


def test_a_call_and_its_result(client):
    session = asked(client, "Is it raining?")
    *deltas, summary = client.generate(session, 500)
    assert [delta.event for delta in deltas] == list(summary.events)
    bodies = [event.body for event in summary.events]
    assert outline(bodies) == ["R", "t", "c", "ToolUse", "t"]
    (call,) = calls_in(summary.events)
    assert bodies[-1] == records.Generated(bodies[-1].span, "", 0, 1)
    assert [body.finish for body in bodies if isinstance(body, records.Generated)][:-1] == [0] * (len(bodies) - 2)
    assert (text_of(bodies, 1), text_of(bodies).strip()) == ("\nI should look.\n", "Let me look.")
    assert json.loads(text_of(bodies, 2))["name"] == "get_weather"
    assert summary.tokens_generated == sum(len(span_of(body)) for body in bodies)
    assert client.ask(requests.OpenToolCalls(session), responses.ToolCalls).calls == ((call, "get_weather", COMPACT),)
    # the log holds the same, and what is in it is what the model saw and drew
    events = events_of(client, session)
    assert events[call].body == records.ToolUse("get_weather", COMPACT)
    assert tokens_of(client, session) == tuple(token for event in events for token in span_of(event.body))

    event = result(client, session, call, "12 °C, rain")
    assert event.body == records.ToolResult(call, "12 °C, rain", event.body.span)
    assert event.body.span
    assert open_calls(client, session) == []
    summary = generate(client, session, 500)
    assert text_of([event.body for event in summary.events]).strip() == "Yes, it rains."
    assert summary.warm_prefix > 0
    assert outline(bodies_of(client, session)) == [
        *("Created", "Message", "Message", "GenerationFingerprint", "GenerationPrompt"),
        *("R", "t", "c", "ToolUse", "t", "ToolResult", "GenerationPrompt", "R", "t"),
    ]


def test_deltas_are_a_subset_of_the_log(client):
    session = asked(client, "Is it raining?")
    first = len(events_of(client, session))
    told = generate(client, session, 500).events
    log = events_of(client, session, first)
    assert [e for e in log if isinstance(e.body, records.Generated | records.ToolUse)] == list(told)
    assert {type(e.body).__name__ for e in set(log) - set(told)} == {"GenerationFingerprint", "GenerationPrompt"}


def test_a_result_before_the_end_of_the_turn(client):
    """The model was cut right after its call; the result closes the turn."""
    session = asked(client, "Is it raining?")
    calls: list[int] = []
    while not calls:
        summary = generate(client, session, 1)
        calls = calls_in(summary.events)
    assert summary.finish == 2
    result(client, session, calls[0], "12 °C, rain")
    bodies = [event.body for event in generate(client, session, 500).events]
    assert text_of(bodies).strip() == "Yes, it rains."


def test_several_calls_and_their_results(client):
    session, (first, second) = called(client, "Twice?")
    assert outline(bodies_of(client, session))[-5:] == ["ToolUse", "t", "c", "ToolUse", "t"]
    assert {call_id: (entry.name, entry.arguments) for call_id, entry in ledger(client, session).items()} == {
        first: ("a", "{}"),
        second: ("b", "{}"),
    }
    assert open_calls(client, session) == [first, second]
    # answered in any order; the reply comes once all are there
    result(client, session, first, "one")
    assert open_calls(client, session) == [second]
    result(client, session, second, "two")
    assert text_of([event.body for event in generate(client, session, 500).events]) == "Both done."


def test_generating_with_an_open_call_goes_on(client):
    session, (call,) = called(client, "Is it raining?")
    assert generate(client, session, 3).tokens_generated == 3
    assert open_calls(client, session) == [call]


def test_a_malformed_call_is_kept_as_it_is_and_the_reply_goes_on(client):
    session = asked(client, "Say it badly.")
    summary = generate(client, session, 500)
    bodies = [event.body for event in summary.events]
    assert outline(bodies) == ["t", "c", "ToolParseFailure", "t"]
    (failure,) = [body for body in bodies if isinstance(body, records.ToolParseFailure)]
    assert failure.raw == '\n{"name": 7}\n'
    assert text_of(bodies) == "Well:  so it is 42."
    assert summary.finish == 1
    assert ledger(client, session) == {}
    # such a history is no obstacle
    say(client, session, "Is it raining?")
    (call,) = calls_in(generate(client, session, 500).events)
    result(client, session, call, '{"broken": ')
    assert generate(client, session, 5).tokens_generated == 5
    child = client.ask(requests.Rebase(session, (records.Replace(2, 3, 1, "Broken: {"),), None), responses.Created)
    assert generate(client, child.session, 5).tokens_generated == 5


def test_a_call_that_the_end_of_the_turn_cuts_off(client):
    session = asked(client, "Break off.")
    bodies = [event.body for event in generate(client, session, 500).events]
    # the record comes after the one that finishes
    assert outline(bodies) == ["c", "ToolUse"]
    assert bodies[-2].finish == 1
    assert bodies[-1] == records.ToolUse("get_weather", '{"city":"Ber"}')
    bodies = [event.body for event in generate(client, asked(client, "Break."), 500).events]
    assert bodies[-1] == records.ToolParseFailure("nothing that is a call")
    assert bodies[-2].finish == 1


def test_reasoning_and_half_a_marker(client):
    bodies = [event.body for event in generate(client, asked(client, "Think."), 500).events]
    assert (text_of(bodies, 1), text_of(bodies)) == ("hm", "\n\nSo: a <tool_call")
    assert outline(bodies) == ["R", "t"]


def test_provisional_text_is_that_of_the_record_without_calls(client, hermes):
    for question in ("Is it raining?", "Think.", "Say it badly."):
        session = asked(client, question)
        with hermes.client() as follower:
            messages = follower.subscribe(session, len(events_of(client, session)) - 1, True)
            next(messages)  # the question, and from now on what happens
            ahead: list[tuple[int, str]] = []
            bodies: list[records.EventBody] = []
            generate(client, session, 500)
            for message in messages:
                if isinstance(message, responses.SubProvisional):
                    ahead.append((message.channel, message.text))
                elif isinstance(message, responses.SubEvent):
                    bodies.append(message.event.body)
                    if isinstance(message.event.body, records.Generated) and message.event.body.finish:
                        break
        assert {channel for channel, _ in ahead} <= {0, 1}
        for channel in (0, 1):
            assert "".join(text for c, text in ahead if c == channel) == text_of(bodies, channel)
        assert "ToolUse" in outline(bodies) or question != "Is it raining?"


def test_cut_after_every_token_it_is_the_same_reply(client):
    for question in ("Is it raining?", "Twice?", "Say it badly.", "Break off.", "Think."):
        whole, pieces = asked(client, question), asked(client, question)
        generate(client, whole, 500)
        for _ in range(500):
            if generate(client, pieces, 1).finish == 1:
                break
        one, other = bodies_of(client, whole), bodies_of(client, pieces)
        assert outline(one) == outline(other)
        assert [b for b in one if _is_call(b)] == [b for b in other if _is_call(b)]
        assert tokens_of(client, whole) == tokens_of(client, pieces)
        for channel in KIND:
            assert text_of(one, channel) == text_of(other, channel)


def _is_call(body):
    return isinstance(body, records.ToolUse | records.ToolParseFailure)


def test_a_session_without_tools_calls_all_the_same(client):
    session = create(client)
    say(client, session, "Is it raining?")
    assert len(calls_in(generate(client, session, 500).events)) == 1


def test_a_result_is_refused_while_the_session_generates(client, hermes):
    session, (call,) = called(client, "Is it raining?")
    say(client, session, "Go on and on.")
    with hermes.client() as other:
        deltas = other.generate(session, 1000)
        next(deltas)
        assert " is generating;" in err(client, requests.AppendToolResult(session, call, "x"))
        client.ask(requests.Cancel(session), responses.Cancelling)
        list(deltas)
    result(client, session, call, "x")


def test_a_large_result(client):
    session, (call,) = called(client, "Is it raining?")
    content = "".join(itertools.islice(itertools.cycle("käse "), 6000))
    event = result(client, session, call, content)
    assert event.body.content == content
    assert "no room for a reply" in err(client, requests.Generate(session, 5))
