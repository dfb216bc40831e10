"""Anthropic's messages: with its own client on the embedded model, and field by field on the fake one."""

import json
import re

import anthropic
import pytest

from tests.http.server import parsed
from tests.support.daemon import DEADLINE

PATH, COUNT = "/v1/messages", "/v1/messages/count_tokens"
GREEDY = {"temperature": 0}
HI = [{"role": "user", "content": "Hi"}]
USAGE = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


def client_of(server):
    return anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0, timeout=DEADLINE)


@pytest.fixture(scope="module")
def claude(server):
    with client_of(server) as client:
        yield client


def ask(server, path=PATH, **fields):
    return server.http.post(path, json={"messages": HI, "max_tokens": 4, "temperature": 0, **fields})


def said(text):
    return [{"role": "user", "content": text}]


# --- the client ---------------------------------------------------------------------------------------------------


def test_a_message(claude, server):
    question = "What is the capital of France?"
    reply = claude.messages.create(
        model="anything",
        system="Answer in one short sentence.",
        messages=said(question),
        max_tokens=30,
        extra_body=GREEDY,
    )
    (block,) = reply.content
    assert (block.type, reply.role, reply.type) == ("text", "assistant", "message")
    assert "Paris" in block.text
    assert (reply.stop_reason, reply.stop_sequence) == ("end_turn", None)
    assert reply.model == server.openai.models.list().data[0].id
    assert reply.id.startswith("msg_")
    assert reply._request_id.startswith("req_")
    same = server.openai.chat.completions.create(
        model="m",
        messages=[
            {"role": "system", "content": "Answer in one short sentence."},
            *said("What is the capital of France?"),
        ],
        max_tokens=30,
        temperature=0,
    )
    assert block.text == same.choices[0].message.content
    usage = reply.usage
    assert usage.input_tokens + usage.cache_read_input_tokens == same.usage.prompt_tokens
    assert usage.cache_creation_input_tokens == 0
    assert usage.output_tokens == same.usage.completion_tokens


def test_a_stream_says_the_same(claude):
    asked = {"model": "m", "messages": said("Name a colour."), "max_tokens": 12, "extra_body": GREEDY}
    whole = claude.messages.create(**asked)
    with claude.messages.stream(**asked) as stream:
        pieces = list(stream.text_stream)
        last = stream.get_final_message()
    assert "".join(pieces) == last.content[0].text == whole.content[0].text
    assert (last.stop_reason, last.usage.output_tokens) == (whole.stop_reason, whole.usage.output_tokens)
    assert len(pieces) > 1
    # The second time, nearly all of the prompt comes warm.
    usage = last.usage
    assert usage.cache_read_input_tokens > 0
    assert usage.input_tokens > 0
    assert usage.input_tokens + usage.cache_read_input_tokens == (
        whole.usage.input_tokens + whole.usage.cache_read_input_tokens
    )


def test_counting_tells_what_a_message_takes(claude):
    prompt = {
        "model": "m",
        "system": [{"type": "text", "text": "Be brief."}],
        "messages": said("Count this, please."),
    }
    count = claude.messages.count_tokens(**prompt).input_tokens
    usage = claude.messages.create(**prompt, max_tokens=1).usage
    assert count == usage.input_tokens + usage.cache_read_input_tokens
    longer = claude.messages.count_tokens(**{**prompt, "messages": said("word " * 2500)}).input_tokens
    assert longer > 2500


def test_the_client_knows_errors(claude, quick):
    with pytest.raises(anthropic.BadRequestError) as refused:
        claude.messages.create(model="m", messages=said("word " * 2500), max_tokens=5)
    found = re.fullmatch(r"prompt is too long: (\d+) tokens > (\d+) maximum", refused.value.body["error"]["message"])
    assert found is not None
    assert int(found[1]) > 2500
    assert int(found[2]) == 2047
    with client_of(quick) as client:
        with pytest.raises(anthropic.BadRequestError, match=r"prompt is too long: [0-9]+ tokens > 2047 maximum"):
            client.messages.create(model="m", messages=said("a" * 20_000_000), max_tokens=5)
        with pytest.raises(anthropic.PermissionDeniedError):
            client.messages.create(
                model="m", messages=HI, max_tokens=5, extra_headers={"origin": "http://evil.example"}
            )
        with pytest.raises(anthropic.NotFoundError) as missing:
            client.post("/v1/messages/batches", cast_to=object, body={})
    assert missing.value.body["error"]["type"] == "not_found_error"
    assert missing.value.request_id == missing.value.body["request_id"]


# --- the wire -----------------------------------------------------------------------------------------------------


def test_the_events_of_a_stream(quick):
    reply = ask(quick, stream=True, max_tokens=5)
    assert reply.headers["content-type"].startswith("text/event-stream")
    events = [frame.split("\n") for frame in reply.text.split("\n\n")[:-1]]
    names = [event.removeprefix("event: ") for event, _ in events]
    data = [json.loads(line.removeprefix("data: ")) for _, line in events]
    assert [one["type"] for one in data] == names
    assert [*dict.fromkeys(names)] == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    start = data[0]["message"]
    assert (start["content"], start["stop_reason"], start["role"]) == ([], None, "assistant")
    assert set(start["usage"]) == set(USAGE) == set(data[-2]["usage"])
    assert start["usage"]["output_tokens"] == start["usage"]["cache_read_input_tokens"] == 0
    assert data[-2]["delta"] == {"stop_reason": "max_tokens", "stop_sequence": None}
    assert data[-2]["usage"]["output_tokens"] == 5
    assert "".join(one["delta"]["text"] for one in data if one["type"] == "content_block_delta")


def test_why_it_stopped(quick):
    whole = ask(quick, max_tokens=30).json()
    assert whole["stop_reason"] == "max_tokens"
    text = whole["content"][0]["text"]
    stop = text[len(text) // 2 :][:3]
    reply = ask(quick, max_tokens=30, stop_sequences=["never said", stop]).json()
    assert (reply["stop_reason"], reply["stop_sequence"]) == ("stop_sequence", stop)
    assert reply["content"] == [{"type": "text", "text": text[: text.index(stop)]}]
    streamed = ask(quick, max_tokens=30, stop_sequences=[stop], stream=True).text
    assert f'"stop_reason":"stop_sequence","stop_sequence":{json.dumps(stop)}' in streamed
    full = ask(quick, max_tokens=10**9, ignore_eos=True).json()
    assert full["stop_reason"] == "model_context_window_exceeded"
    usage = full["usage"]
    assert usage["input_tokens"] + usage["cache_read_input_tokens"] + usage["output_tokens"] == 2048


def test_forms_of_the_same_prompt(quick):
    def count(**fields):
        return ask(quick, COUNT, **fields).json()["input_tokens"]

    parts = [{"type": "text", "text": "Good ", "cache_control": {"type": "ephemeral"}}, {"text": "day."}]
    assert count(messages=said(parts)) == count(messages=said("Good day."))
    assert count(system=None) == count(system=[]) == count(system="") == count()
    assert count(system=[{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]) == count(system="a\n\nb")
    chat = quick.chat("Good day.").json()["usage"]["prompt_tokens"]
    assert count(messages=said("Good day."), max_tokens=None, temperature=None) == chat


def test_fields_that_are_ignored_or_null(quick):
    plain = ask(quick).json()
    odd = ask(
        quick,
        model=None,
        metadata={"user_id": "someone"},
        service_tier="auto",
        tools=[],
        tool_choice={"type": "auto", "disable_parallel_tool_use": True},
        thinking={"type": "disabled"},
        output_config={"effort": "low"},
        system=None,
        stop_sequences=None,
        stream=None,
        top_p=None,
        top_k=None,
        whatever={"deep": [1]},
    ).json()
    assert odd["content"] == plain["content"]


REFUSED = [
    ({"messages": None}, "messages", "missing"),
    ({"messages": []}, "messages", "at least one message"),
    ({"messages": "Hi"}, "messages", "expected an array"),
    ({"messages": ["Hi"]}, "messages[0]", "an object with role and content"),
    ({"messages": [{"content": "Hi"}]}, "messages[0].role", "missing"),
    ({"messages": [{"role": "user"}]}, "messages[0].content", "missing"),
    ({"messages": [{"role": "system", "content": "Hi"}]}, "messages[0].role", "goes into the field system"),
    ({"messages": [{"role": "tool", "content": "Hi"}]}, "messages[0].role", 'got "tool"'),
    ({"messages": said(5)}, "messages[0].content", "a string or an array"),
    ({"messages": said(["x"])}, "messages[0].content[0]", "an object"),
    ({"messages": said([{"type": "text"}])}, "messages[0].content[0].text", "missing"),
    ({"messages": said([{"type": "image", "source": {}}])}, "messages[0].content[0].type", "does not do images"),
    ({"messages": said([{"type": "tool_result"}])}, "messages[0].content[0].type", "does not do tools"),
    ({"messages": said([{"type": "thinking"}])}, "messages[0].content[0].type", "does not do thinking"),
    ({"messages": said([{"type": "sound"}])}, "messages[0].content[0].type", "sound"),
    ({"system": 5}, "system", "a string or an array"),
    ({"system": [{"type": "image"}]}, "system[0].type", "does not do images"),
    ({"tools": [{"name": "f"}]}, "tools", "does not do tools"),
    ({"tool_choice": {"type": "any"}}, "tool_choice", "does not do tools"),
    ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, "thinking", "does not do thinking"),
    ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format", "structured output"),
    ({"metadata": "x"}, "metadata", "expected an object"),
    ({"model": 5}, "model", "expected a string"),
    ({"session_id": "s"}, "session_id", "x-superfluid-session-id"),
]
SAMPLING = [
    ({"max_tokens": None}, "max_tokens", "missing"),
    ({"max_tokens": 0}, "max_tokens", "from 1 up"),
    ({"max_tokens": "5"}, "max_tokens", 'got "5"'),
    ({"temperature": 3}, "temperature", "from 0 to 2"),
    ({"top_p": -1}, "top_p", "from 0 to 1"),
    ({"top_k": "x"}, "top_k", "a whole number"),
    ({"stop_sequences": [1]}, "stop_sequences[0]", "1 to 4096 characters"),
    ({"stream": "yes"}, "stream", "true or false"),
]


def check(reply, param, expected):
    fault = reply.json()
    assert (reply.status_code, fault["type"], fault["error"]["type"]) == (400, "error", "invalid_request_error")
    assert set(fault) == {"type", "error", "request_id"}
    assert fault["error"]["message"].startswith(f"{param}: ")
    assert expected in fault["error"]["message"]
    assert reply.headers["request-id"] == fault["request_id"]


@pytest.mark.parametrize("entry", [*REFUSED, *SAMPLING], ids=lambda entry: f"{entry[1]}: {json.dumps(entry[0])[:40]}")
def test_fields(quick, entry):
    fields, param, expected = entry
    check(ask(quick, **fields), param, expected)
    if entry in REFUSED:
        check(ask(quick, COUNT, **fields), param, expected)


def test_what_is_no_request(quick):
    for path in (PATH, COUNT):
        for body, kind, status in (
            (b"", "application/json", 400),
            (b"[]", "application/json", 400),
            (b"{", "text/plain", 415),
        ):
            found, fault = quick.post(path, body, kind=kind)
            assert (found, fault["type"]) == (status, "error")
        reply = quick.http.get(path)
        assert (reply.status_code, reply.json()["type"]) == (405, "error")


def test_a_key_is_asked_for_in_this_dialect(servers):
    server = servers(http={"api_key": "sk-test"})
    status, fault = server.post(PATH, b"{}")
    assert (status, fault["type"], fault["error"]["type"]) == (401, "error", "authentication_error")
    status, fault = parsed(server.raw(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"))
    assert (status, fault["error"]["type"]) == (401, "authentication_error")
    for path in ("/health", "/healthz"):
        assert server.http.get(path).status_code == 200
