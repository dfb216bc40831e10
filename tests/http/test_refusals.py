"""Requests that make no sense: each gets a status and an error that names the field, and the server goes on."""

import json

import openai
import pytest

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
MESSAGES = [{"role": "user", "content": "Hi"}]

SHARED = [
    ({"n": 0}, "n", "from 1 to 8"),
    ({"n": 9}, "n", "from 1 to 8"),
    ({"n": True}, "n", "got true"),
    ({"max_tokens": 0}, "max_tokens", "a whole number from 1 up"),
    ({"max_tokens": -1}, "max_tokens", "got -1"),
    ({"max_tokens": 1.5}, "max_tokens", "got 1.5"),
    ({"max_tokens": "5"}, "max_tokens", 'got "5"'),
    ({"temperature": 2.5}, "temperature", "a number from 0 to 2"),
    ({"temperature": -0.1}, "temperature", "a number from 0 to 2"),
    ({"temperature": "hot"}, "temperature", 'got "hot"'),
    ({"temperature": False}, "temperature", "got false"),
    ({"temperature": [0]}, "temperature", "got an array of 1"),
    ({"top_p": 1.01}, "top_p", "from 0 to 1"),
    ({"min_p": -1}, "min_p", "from 0 to 1"),
    ({"top_k": -2}, "top_k", "from -1"),
    ({"top_k": 2**31}, "top_k", "from -1 to 2147483647"),
    ({"top_k": 10.0}, "top_k", "a whole number"),
    ({"seed": 2**64}, "seed", "a whole number from"),
    ({"seed": "1"}, "seed", "a whole number from"),
    ({"frequency_penalty": 3}, "frequency_penalty", "from -2 to 2"),
    ({"presence_penalty": -3}, "presence_penalty", "from -2 to 2"),
    ({"repeat_penalty": 0}, "repeat_penalty", "from 0.01 to 2"),
    ({"logit_bias": []}, "logit_bias", "expected an object"),
    ({"logit_bias": {"x": 1}}, "logit_bias", "token ids below 49152"),
    ({"logit_bias": {"49152": 1}}, "logit_bias", "token ids below 49152"),
    ({"logit_bias": {"5": 101}}, "logit_bias.5", "from -100 to 100"),
    ({"logit_bias": {"5": None}}, "logit_bias.5", "got null"),
    ({"ignore_eos": 1}, "ignore_eos", "true or false"),
    ({"stop": ""}, "stop", "1 to 4096 characters"),
    ({"stop": 5}, "stop", "expected a string, or an array"),
    ({"stop": ["a", ""]}, "stop[1]", "1 to 4096 characters"),
    ({"stop": ["a", None]}, "stop[1]", "got null"),
    ({"stop": ["a"] * 17}, "stop", "at most 16"),
    ({"stop": "a" * 4097}, "stop", "got a string of 4097 characters"),
    ({"stream": "yes"}, "stream", "true or false"),
    ({"stream": 1}, "stream", "true or false"),
    ({"stream_options": {"include_usage": True}}, "stream_options", "only with stream"),
    ({"stream": True, "stream_options": True}, "stream_options", "expected an object"),
    ({"stream": True, "stream_options": {"include_usage": "x"}}, "stream_options.include_usage", "true or false"),
    ({"model": 5}, "model", "expected a string"),
    ({"response_format": {"type": "json_object"}}, "response_format", "structured output"),
    ({"response_format": "json"}, "response_format", "structured output"),
    ({"guided_json": {"type": "object"}}, "guided_json", "structured output"),
    ({"session_id": "s"}, "session_id", "x-superfluid-session-id"),
]

CHAT_ONLY = [
    ({"messages": None}, "messages", "missing"),
    ({"messages": []}, "messages", "at least one message"),
    ({"messages": {}}, "messages", "expected an array"),
    ({"messages": "Hi"}, "messages", "expected an array"),
    ({"messages": ["Hi"]}, "messages[0]", "an object with role and content"),
    ({"messages": [{"content": "Hi"}]}, "messages[0].role", "missing"),
    ({"messages": [{"role": 1, "content": "Hi"}]}, "messages[0].role", "expected a string"),
    ({"messages": [{"role": "boss", "content": "Hi"}]}, "messages[0].role", 'got "boss"'),
    ({"messages": [*MESSAGES, {"role": "tool", "content": "Hi"}]}, "messages[1].role", "does not do tools"),
    ({"messages": [*MESSAGES, {"role": "user", "content": 5}]}, "messages[1].content", "a string or an array"),
    ({"messages": [{"role": "user", "content": {"text": "x"}}]}, "messages[0].content", "got an object"),
    ({"messages": [{"role": "user", "content": ["x"]}]}, "messages[0].content[0]", "an object"),
    ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text", "missing"),
    (
        {"messages": [{"role": "user", "content": [{"type": "text", "text": 1}]}]},
        "messages[0].content[0].text",
        "expected a string, got 1",
    ),
    (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
        "messages[0].content[0].type",
        "image_url",
    ),
    (
        {"messages": [{"role": "assistant", "tool_calls": [{"id": "1"}]}]},
        "messages[0].tool_calls",
        "does not do tools",
    ),
    ({"messages": [{"role": "assistant", "audio": {"id": "1"}}]}, "messages[0].audio", "does not do audio"),
    ({"messages": [{"role": "assistant", "refusal": "No."}]}, "messages[0].refusal", "does not do refusals"),
    ({"tools": [{"type": "function"}]}, "tools", "does not do tools"),
    ({"tool_choice": "required"}, "tool_choice", "does not do tools"),
    ({"tool_choice": {"type": "function"}}, "tool_choice", "does not do tools"),
    ({"functions": [{}]}, "functions", "does not do tools"),
    ({"logprobs": True}, "logprobs", "log probabilities"),
    ({"top_logprobs": 2}, "top_logprobs", "log probabilities"),
    ({"modalities": ["audio"]}, "modalities", "other modalities"),
    ({"max_completion_tokens": 0}, "max_completion_tokens", "from 1 up"),
    ({"chat_template_kwargs": []}, "chat_template_kwargs", "expected an object"),
]

COMPLETIONS_ONLY = [
    ({"prompt": None}, "prompt", "missing"),
    ({"prompt": []}, "prompt", "at least one prompt"),
    ({"prompt": {}}, "prompt", "expected a string, an array"),
    ({"prompt": 5}, "prompt", "expected a string, an array"),
    ({"prompt": ""}, "prompt", "no tokens"),
    ({"prompt": ["a", 5]}, "prompt[1]", "a string or an array of token ids"),
    ({"prompt": [5, "a"]}, "prompt[1]", "a token id below 49152"),
    ({"prompt": [5, -1]}, "prompt[1]", "a token id below 49152"),
    ({"prompt": [[5], []]}, "prompt[1]", "at least one token"),
    ({"prompt": [[49152]]}, "prompt[0][0]", "a token id below 49152"),
    ({"prompt": ["a"] * 33}, "prompt", "at most 32"),
    ({"echo": True}, "echo", "does not do echo"),
    ({"suffix": "x"}, "suffix", "suffixes"),
    ({"best_of": 2}, "best_of", "best_of"),
    ({"logprobs": 0}, "logprobs", "log probabilities"),
]


def case(entry):
    return f"{entry[1]}: {json.dumps(entry[0])[:40]}"


def check(reply, param, expected):
    error = reply.json()["error"]
    assert (reply.status_code, error["type"], error["param"]) == (400, "invalid_request_error", param), error
    assert expected in error["message"]
    assert param.partition("[")[0] in error["message"]


@pytest.mark.parametrize("entry", [*SHARED, *CHAT_ONLY], ids=case)
def test_chat_fields(quick, entry):
    fields, param, expected = entry
    check(quick.http.post(CHAT, json={"messages": MESSAGES, "max_tokens": 1, **fields}), param, expected)


@pytest.mark.parametrize("entry", [*SHARED, *COMPLETIONS_ONLY], ids=case)
def test_completion_fields(quick, entry):
    fields, param, expected = entry
    check(quick.http.post(COMPLETIONS, json={"prompt": "Hi", "max_tokens": 1, **fields}), param, expected)


def test_streams_are_refused_before_the_first_byte(quick):
    for fields in ({"temperature": 9}, {"messages": [{"role": "user", "content": "word " * 4000}]}):
        reply = quick.chat(stream=True, **fields)
        assert reply.status_code == 400
        assert reply.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"hello", "not JSON"),
        (b"{'messages': []}", "not JSON"),
        (b"\xff\xfe{", "byte 0 is not UTF-8"),
        (b'{"a": NaN}', "NaN is no JSON"),
        (b'{"a": -Infinity}', "-Infinity is no JSON"),
        (b'{"a": "\x00"}', "Invalid control character"),
        (b'{"a": 1}{"b": 2}', "Extra data"),
        (b"[]", "not a JSON object"),
        (b"null", "not a JSON object"),
        (b'"messages"', "not a JSON object"),
        (b"[" * 100_000, "nested too deep"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "nested too deep"),
        (b'{"seed": ' + b"9" * 5000 + b"}", "too many digits"),
    ],
)
def test_what_is_no_json(quick, body, expected):
    status, reply = quick.post(CHAT, body)
    assert (status, reply["error"]["code"]) == (400, "invalid_json")
    assert expected in reply["error"]["message"]


@pytest.mark.parametrize(
    ("text", "param"),
    [
        ('{"messages": [{"role":"user","content":"x"}], "temperature": 1e999}', "temperature"),
        ('{"messages": [{"role":"user","content":"x"}], "max_tokens": 1e3}', "max_tokens"),
        ('{"messages": [{"role":"user","content":"x"}], "top_k": 1' + "0" * 4000 + "}", "top_k"),
        ('{"messages": [{"role":"user","content":"x"}], "temperature": 1' + "0" * 4000 + "}", "temperature"),
        ('{"messages": [{"role":"\\ud800","content":"x"}]}', "messages[0].role"),
        ('{"messages": [{"role":"user","content":"x"}], "stop": 1, "stop": 2}', "stop"),
    ],
)
def test_odd_values(quick, text, param):
    status, reply = quick.post(CHAT, text.encode())
    assert (status, reply["error"]["param"]) == (400, param)


@pytest.mark.parametrize(
    "text",
    [
        '{"messages": [{"role":"user","content":"half \\ud800 a pair"}], "max_tokens": 2}',
        '{"messages": [{"role":"user","content":"\\u0000\\uffff\\ue000\\ufffe"}], "max_tokens": 2}',
        '{"messages": [{"role":"user","content":"x"}], "max_tokens": 2, "stop": "\\udfff"}',
        '{"messages": [], "messages": [{"role":"user","content":"the last one counts"}], "max_tokens": 2}',
        '\ufeff{"messages": [{"role":"user","content":"x"}], "max_tokens": 2}',
        '{"messages": [{"role":"user","content":"x"}], "max_tokens": 1000000000000000000000, "stop": "'
        + "x" * 9
        + '"}',
    ],
)
def test_odd_texts_are_answered(quick, text):
    status, reply = quick.post(CHAT, text.encode())
    assert (status, reply["choices"][0]["finish_reason"]) == (200, "length")


def test_a_prompt_that_does_not_fit(server):
    with pytest.raises(openai.BadRequestError) as refused:
        server.openai.chat.completions.create(model="m", messages=[{"role": "user", "content": "word " * 2500}])
    assert refused.value.code == "context_length_exceeded"
    assert refused.value.param == "messages"
    assert "2048 tokens" in str(refused.value)
    assert " 25" in str(refused.value)
    with pytest.raises(openai.BadRequestError) as refused:
        server.openai.completions.create(model="m", prompt=[7] * 2048)
    assert (refused.value.code, refused.value.param) == ("context_length_exceeded", "prompt")


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "user", "content": "a " * 20_000_000}],
        [{"role": "user", "content": "x"}] * 500_000,
        [{"role": "user", "content": [{"type": "text", "text": "a" * 10_000_000}] * 3}],
    ],
    ids=["one long text", "many messages", "long parts"],
)
def test_what_cannot_fit_is_refused_uncounted(quick, messages):
    reply = quick.chat(messages=messages)
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "context_length_exceeded")
    assert "at least" in reply.json()["error"]["message"]


def test_the_client_maps_errors(quick):
    with pytest.raises(openai.NotFoundError) as missing:
        quick.openai.models.retrieve("nothing")
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as bad:
        quick.openai.chat.completions.create(model="m", messages=[{"role": "boss", "content": "x"}])
    assert bad.value.param == "messages[0].role"


def test_scheduling_classes(quick):
    for name in ("interactive", "Interactive_Chat", "0", "completion", "agent", "foreground-agent", "background"):
        assert quick.http.post(
            CHAT, json={"messages": MESSAGES, "max_tokens": 1}, headers={"x-superfluid-qos": name}
        ).is_success
    reply = quick.http.post(CHAT, json={"messages": MESSAGES}, headers={"x-superfluid-qos": "fast"})
    check(reply, "x-superfluid-qos", "expected one of interactive")


def test_paths_and_methods(quick):
    for method, path, status in (
        ("GET", "/", 404),
        ("GET", "/v1", 404),
        ("GET", "/v1/models/a%2Fb%00", 404),
        ("GET", CHAT, 405),
        ("GET", CHAT + "/", 405),
        ("POST", "/health", 405),
        ("DELETE", "/v1/models", 405),
        ("POST", "/v1/embeddings", 404),
    ):
        reply = quick.http.request(method, path)
        assert reply.status_code == status, (method, path)
        assert reply.json()["error"]["type"] in ("not_found_error", "invalid_request_error")


def test_nothing_of_this_ended_the_server(quick):
    assert quick.chat().status_code == 200
    assert "superfluid_worker_respawns_total 0.0" in quick.http.get("/metrics").text
