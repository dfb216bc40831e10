"""The sentences of the document: "Behaviour to know", and the notes below the tables."""

import json
import urllib.request

import pytest

from tests.acceptance.scene import TOOLS, model
from tests.acceptance.story import GREEDY, SAMPLED
from tests.acceptance.talks import Socket, Ws, fields_of, name_of
from tests.support.daemon import DEADLINE
from tests.web.server import Web

OPEN_ENDED = "Tell me everything."
"""a question whose answer does not end"""


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """A daemon with every listener; a test may kill it and start it again."""
    directory = tmp_path_factory.mktemp("house")
    web = Web(directory, **model(directory, delay_us=500), http={"port": 0})
    yield web
    web.close()


def session(web, *messages, params=GREEDY):
    made = web.rpc({"Create": {"parent": None, "params": params}})["Created"]["session"]
    for place, text in enumerate(messages):
        say(web, made, text, 1 if place % 2 == 0 else 2)
    return made


def say(web, session, text, role=1):
    return ask(web, "AppendMessage", session=session, role=role, text=text)["Committed"]["event"]


def ask(web, name, **fields):
    reply = web.rpc({name: fields})
    assert name_of(reply) != "Err", (name, fields, reply)
    return reply


def refused(web, name, **fields):
    return fields_of(web.rpc({name: fields}))["message"]


def generate(web, session, max_tokens):
    """The committed events and how it ended."""
    *committed, done = web.stream(session=session, max_tokens=max_tokens)
    return [frame["committed"] for frame in committed], done["done"]


def tokens(web, session):
    return ask(web, "Inspect", session=session)["Inspection"]["inspection"]["tokens"]


def text_of(events, channel=0):
    said = [event["body"]["Generated"] for event in events if "Generated" in event["body"]]
    return "".join(one["text"] for one in said if one["channel"] == channel)


def drawn(events):
    return [token for event in events for token in fields_of(event["body"]).get("span", [])]


def prompt_tokens(web, messages, **more):
    """How many tokens the HTTP route makes of a conversation."""
    body = json.dumps({"model": "tiny", "messages": messages, "max_tokens": 1, **more}).encode()
    request = urllib.request.Request(
        f"{web.daemon.url()}/v1/chat/completions", body, {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=DEADLINE) as reply:
        return json.loads(reply.read())["usage"]["prompt_tokens"]


# --- behaviour to know ----------------------------------------------------------------------------------------------


def test_a_session_keeps_reasoning_and_http_does_not_until_it_is_rebased_into_one_message(house):
    kept = session(house, "And two lakes?")
    reply, done = generate(house, kept, 200)
    assert done["finish"] == 1
    assert (text_of(reply, 1).strip(), text_of(reply).strip()) == ("Lakes.", "Lake Como, Lake Garda.")
    edit = {"from": reply[0]["event_id"], "to": reply[-1]["event_id"] + 1, "role": 2, "text": text_of(reply).strip()}
    rebased = ask(house, "Rebase", session=kept, edits=[{"Replace": edit}], params=None)["Created"]["session"]
    messages = [
        {"role": "user", "content": "And two lakes?"},
        {"role": "assistant", "content": text_of(reply).strip()},
        {"role": "user", "content": "Name three rivers."},
    ]
    by_http = prompt_tokens(house, messages)
    written = session(house, *(message["content"] for message in messages[:2]))
    assert tokens(house, rebased) == tokens(house, written)
    for one, same in [(kept, False), (rebased, True), (written, True)]:
        say(house, one, "Name three rivers.")
        generate(house, one, 1)
        assert (len(tokens(house, one)) - 1 == by_http) is same
    assert len(tokens(house, kept)) > len(tokens(house, rebased))


@pytest.mark.parametrize("params", [GREEDY, SAMPLED])
def test_a_generation_continued_after_a_cut_or_a_cancel_draws_what_the_uncut_one_would(house, params):
    whole, cut, cancelled = (session(house, OPEN_ENDED, params=params) for _ in range(3))
    expected = drawn(generate(house, whole, 120)[0])
    found = []
    for most in (1, 13, 106):
        found += drawn(generate(house, cut, most)[0])
    assert found == expected
    with house.streaming(session=cancelled, max_tokens=120) as frames:
        next(frames)
        ask(house, "Cancel", session=cancelled)
        *_, done = frames
    assert done["done"]["finish"] == 4
    first = [token for event in house.read(cancelled)[4:] for token in fields_of(event["body"]).get("span", [])]
    assert 0 < len(first) < 120
    assert first + drawn(generate(house, cancelled, 120 - len(first))[0]) == expected


def test_a_fork_that_keeps_its_seed_shares_the_draws_and_another_seed_does_not(house):
    parent = session(house, OPEN_ENDED, params=SAMPLED)
    twin, other = (
        ask(house, "Fork", session=parent, at_event=2, params=params)["Created"]["session"]
        for params in (None, {**SAMPLED, "seed": 2})
    )
    # The engine of these tests computes the same in every batch shape; so the words are the same as well.
    said = [drawn(generate(house, one, 30)[0]) for one in (parent, twin, other)]
    assert said[0] == said[1] != said[2]


def test_after_a_crash_the_reply_goes_on_from_the_last_committed_event(house):
    whole, broken = (session(house, OPEN_ENDED, params=SAMPLED) for _ in range(2))
    expected = text_of(generate(house, whole, 150)[0])
    shown = ""
    with house.streaming(session=broken, max_tokens=150, provisional=True) as frames:
        for frame in frames:
            shown += frame.get("provisional", {}).get("text", "")
            if len(shown) > 60:
                house.daemon.kill()
                break
    house.start()
    kept = text_of([event for event in house.read(broken) if event["body"] != "EpochBump"])
    assert shown.startswith(kept) or kept.startswith(shown)
    count = len(drawn([event for event in house.read(broken) if "Generated" in event["body"]]))
    rest, done = generate(house, broken, 150 - count)
    assert done["warm_prefix"] == 0  # prefilled again
    assert kept + text_of(rest) == expected
    # A cursor from before resolves, and what was shown can be seen drawn again.
    assert expected.startswith(shown)


# --- notes below the tables -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("talk", [Socket, Ws])
def test_a_connection_runs_one_request_at_a_time(house, talk):
    one = session(house, OPEN_ENDED)
    with talk(house) as talking:
        talking.send({"Generate": {"session": one, "max_tokens": 30}})
        talking.send({"Cancel": {"session": one}})
        told = []
        while not told or told[-1] != "Err":
            told.append(name_of(talking.receive()))
        assert told == ["Delta"] * (len(told) - 2) + ["Generated", "Err"]


def test_closing_the_stream_ends_the_generation_as_cancel_does(house):
    one = session(house, OPEN_ENDED)
    with house.streaming(session=one, max_tokens=1500) as frames:
        next(frames)
    follower = {"session": one, "cursor": 0, "provisional": False}
    with Ws(house) as talking:
        talking.ask({"Subscribe": follower})
        finish = 0
        while not finish:
            finish = fields_of(talking.receive()["SubEvent"]["event"]["body"]).get("finish", 0)
    assert finish == 4
    assert "no generation in flight" in refused(house, "Cancel", session=one)


def test_generating_after_a_user_message_opens_a_new_turn(house):
    one = session(house, OPEN_ENDED)
    generate(house, one, 3)
    say(house, one, "Name three rivers.")
    generate(house, one, 200)
    names = [name_of(event["body"]) for event in house.read(one)]
    assert names.count("GenerationPrompt") == 2
    first = names.index("GenerationPrompt")
    assert names[first - 2 : first] == ["Message", "GenerationFingerprint"]
    assert names[names.index("GenerationPrompt", first + 1) - 1] == "Message"


def test_ids_count_up_from_0_and_a_fork_keeps_those_it_shares(house):
    one = session(house, "Name three rivers.")
    generate(house, one, 200)
    log = house.read(one)
    assert [event["event_id"] for event in log] == list(range(len(log)))
    for at in (1, 2, len(log)):
        child = ask(house, "Fork", session=one, at_event=at, params=None)["Created"]["session"]
        assert house.read(child)[:at] == log[:at]
        assert len(house.read(child)) == at + 1
    assert f"1..={len(log)}" in refused(house, "Fork", session=one, at_event=len(log) + 1, params=None)


@pytest.mark.parametrize("field", GREEDY)
def test_params_takes_all_five_fields(house, field):
    partly = {name: value for name, value in GREEDY.items() if name != field}
    status, _, body = house.post("/web/rpc", {"Create": {"parent": None, "params": partly}})
    assert status == 422
    assert f".params.{field}: missing" in json.loads(body)["Err"]["message"]


def test_temperature_0_is_greedy_whatever_the_rest(house):
    said = [
        drawn(generate(house, session(house, OPEN_ENDED, params=params), 10)[0])
        for params in (GREEDY, {**SAMPLED, "temperature": 0.0}, SAMPLED)
    ]
    assert said[0] == said[1] != said[2]


@pytest.mark.parametrize("tool", TOOLS)
def test_a_tool_is_declared_in_each_of_its_forms(house, tool):
    """As it stands in the template's own words, whatever the form that it came in."""
    given = json.loads(tool)
    function = given.get("function", given)
    function = {
        "type": "function",
        "function": {
            "name": function["name"],
            "description": function["description"],
            "parameters": function.get("parameters", function.get("input_schema")),
        },
    }
    one, other = session(house), session(house)
    event = ask(house, "AppendSystem", session=one, text="Use tools.", tools=[tool])["Committed"]["event"]
    assert event["body"]["Message"]["text"] == "Use tools."
    ask(house, "AppendSystem", session=other, text="Use tools.", tools=[json.dumps(function)])
    assert len(tokens(house, one)) == len(tokens(house, other))


def test_a_system_turn_comes_before_any_input_inherited_input_included(house):
    one = session(house, "Name three rivers.")
    late = "AppendSystem must come before any other turn"
    assert late in refused(house, "AppendSystem", session=one, text="x", tools=[])
    inherits = ask(house, "Fork", session=one, at_event=2, params=None)["Created"]["session"]
    assert late in refused(house, "AppendSystem", session=inherits, text=None, tools=TOOLS)
    empty = ask(house, "Fork", session=one, at_event=1, params=None)["Created"]["session"]
    ask(house, "SetMeta", session=empty, expected_version=0, title="no input", archived=None)
    ask(house, "AppendSystem", session=empty, text=None, tools=TOOLS)


def test_replacing_to_the_end_edits_a_message_and_drops_what_followed(house):
    one = session(house, "Name three rivers.")
    generate(house, one, 200)
    edit = {"from": 1, "to": len(house.read(one)), "role": 1, "text": "And two lakes?"}
    edited = ask(house, "Rebase", session=one, edits=[{"Replace": edit}], params=None)["Created"]["session"]
    assert tokens(house, edited) == tokens(house, session(house, "And two lakes?"))
    assert text_of(generate(house, edited, 200)[0]).strip() == "Lake Como, Lake Garda."


def test_warm_prefix_counts_prompt_tokens_from_the_cache(house):
    one = session(house, "Name three rivers.")
    generate(house, one, 200)
    had = len(tokens(house, one))
    say(house, one, OPEN_ENDED)
    assert had - 1 <= generate(house, one, 1)[1]["warm_prefix"] <= had
