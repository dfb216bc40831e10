"""AppendSystem with tools (wire-facts 8.5)."""

import json

import pytest

from superfluid.protocol import records, requests, responses
from superfluid.protocol.records import Drop
from tests.model import templates, tiny_gguf
from tests.support import scripted
from tests.support.daemon import FAKE, Daemon, create, generate, say, tokens_of
from tests.tools.talk import WEATHER, bodies_of, commit, declare, err


def system(session, text, *tools):
    return requests.AppendSystem(session, text, tools)


def test_a_declaration_is_a_system_message_of_which_the_tools_are_tokens_only(client):
    bare, declared = create(client), create(client)
    plain = commit(client, system(bare, "Be terse."))
    event = declare(client, declared, text="Be terse.")
    assert event.body == records.Message(0, "Be terse.", event.body.span)
    assert tokens_of(client, declared) == event.body.span
    assert len(event.body.span) > len(plain.body.span)
    empty = create(client)
    assert declare(client, empty, text=None).body.text == ""


def test_tools_of_any_shape_are_the_same(client):
    function = WEATHER["function"]
    shapes = (
        WEATHER,
        function,
        {
            "name": function["name"],
            "description": function["description"],
            "input_schema": function["parameters"],
        },
    )
    assert len({declare(client, create(client), shape).body.span for shape in shapes}) == 1


@pytest.mark.parametrize(
    ("tool", "why"),
    [
        ("{", "JSON"),
        ("[]", "not a JSON object"),
        ('{"type": "browser"}', "type"),
        ('{"function": 3}', "function is not an object"),
        ('{"description": "x"}', "no name"),
        ('{"name": "f", "parameters": 3}', "parameters are not an object"),
    ],
)
def test_bad_tools(client, tool, why):
    session = create(client)
    said = err(client, system(session, "x", json.dumps(WEATHER), tool, "{"))
    assert said.startswith("tool 1 is not a function declaration: ")
    assert why in said
    assert len(bodies_of(client, session)) == 1


def test_the_order_of_checks(client):
    session = create(client)
    # nothing at all, then the tools, then the session
    assert err(client, system(999_999, None)) == "protocol: AppendSystem had neither text nor tools"
    assert err(client, system(999_999, "x", "{")).startswith("tool 0 ")
    assert err(client, system(999_999, "x")).startswith("unknown session")
    say(client, session, "Hello.")
    assert "AppendSystem must come before any other turn" in err(client, system(session, "x", json.dumps(WEATHER)))


def test_only_tokens_stand_in_the_way(client):
    session = create(client)
    commit(client, requests.SetQos(session, 3, False))
    client.ask(requests.SetMeta(session, 0, "a title", None), responses.Meta)
    client.ask(requests.Pin(session, 0), responses.Pinned)
    commit(client, requests.AppendBlock(session, 1, 4, "{}"))
    declare(client, session)
    child = client.ask(requests.Fork(session, 6, None), responses.Created).session
    assert "must come before any other turn" in err(client, system(child, "x"))
    empty = client.ask(requests.Rebase(session, (Drop(4, 6),), None), responses.Created).session
    declare(client, empty)


def test_busy_comes_before_too_late(client, hermes):
    session = create(client)
    say(client, session, "Go on and on.")
    with hermes.client() as other:
        deltas = other.generate(session, 1500)
        next(deltas)
        assert " is generating;" in err(client, system(session, "x", json.dumps(WEATHER)))
        client.ask(requests.Cancel(session), responses.Cancelling)
        *_, summary = deltas
    assert summary.finish == 4


def test_a_model_that_cannot_call_says_so(tmp_path):
    with Daemon(tmp_path, **scripted.write(tmp_path, templates.CHATML, {})) as daemon, daemon.client() as client:
        session = create(client)
        said = err(client, system(session, "x", json.dumps(WEATHER)))
        assert said.startswith("protocol: this model cannot call tools: its chat template has no place for tools")
        commit(client, system(session, "x"))
        # what looks like a call of another model's is text
        say(client, session, "Hello.")
        assert all(event.body.channel == 0 for event in generate(client, session, 5).events)


def test_a_model_without_a_template(tmp_path):
    path = tiny_gguf.write(tmp_path / "bare.gguf", layers=1)
    settings = {"model": str(path), "worker_argv": [*FAKE, "vocabulary=600"]}
    with Daemon(tmp_path, **settings) as daemon, daemon.client() as client:
        session = create(client)
        assert "no chat template" in err(client, system(session, "x", json.dumps(WEATHER)))
        assert "no chat template" in err(client, requests.AppendBlock(session, 1, 6, '{"path": "a"}'))
        assert commit(client, requests.AppendBlock(session, 1, 4, "{}")).body.span == ()
