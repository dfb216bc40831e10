"""Whatever a model writes is a call or a failure that keeps the text (wire-facts 8.16)."""

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from superfluid.model.callparse import BadCall, ParsedCall, parse_arguments, parse_calls


@pytest.mark.parametrize(
    ("raw", "arguments"),
    [
        ('{"name": "f", "arguments": {"a": 1}}', '{"a":1}'),
        ('{"name": "f", "parameters": {"a": 1}}', '{"a":1}'),
        ('{"name": "f", "args": {"a": 1}}', '{"a":1}'),
        ('{"name": "f", "input": {"a": 1}}', '{"a":1}'),
        ('{"arguments": {"a": 1}, "name": "f", "id": "123456789"}', '{"a":1}'),
        ('{"type": "function", "function": {"name": "f", "arguments": {"a": 1}}}', '{"a":1}'),
        ('{"name": "f", "arguments": "{\\"a\\": \\"x\\"}"}', '{"a":"x"}'),
        ('{"name": "f"}', "{}"),
        ('{"name": "f", "arguments": null}', "{}"),
        ('\n```json\n{"name": "f", "arguments": {"a": 1}}\n```\n', '{"a":1}'),
        ('```{"name": "f", "arguments": {"a": 1}```', '{"a":1}'),
        ('Sure: {"name": "f", "arguments": {"a": 1}} {"name": "g"} and more', '{"a":1}'),
        ('[1] {"name": "f", "arguments": {"a": 1}}', '{"a":1}'),
        ('{"name": "f", "arguments": {"a": [1, 2, ], "b": "x,}" , } , }', '{"a":[1,2],"b":"x,}"}'),
        ('{"name": "f", "arguments": {"a": "one\ntwo\tthree"}}', '{"a":"one\\ntwo\\tthree"}'),
        ('{"name": "f", "arguments": {"b": {"z": "é", "a": "\\u00e9\\ud83c\\udf89"}}}', '{"b":{"z":"é","a":"é🎉"}}'),
        ('{"name": "f", "arguments": {"a": "\\ud83c"}}', '{"a":"\ufffd"}'),
        # cut short
        ('{"name": "f", "arguments": {"a": 1', '{"a":1}'),
        ('{"name": "f", "arguments": {"a": 1, "b', '{"a":1}'),
        ('{"name": "f", "arguments": {"a": 1, "b"', '{"a":1}'),
        ('{"name": "f", "arguments": {"a": 1, "b":', '{"a":1}'),
        ('{"name": "f", "arguments": {"a": 1, "b": fal', '{"a":1}'),
        ('{"name": "f", "arguments": {"a": 1, ', '{"a":1}'),
        ('{"name": "f", "arguments": {"a": [1, {"b": "half', '{"a":[1,{"b":"half"}]}'),
        ('{"name": "f", "arguments": {"a": "x\\', '{"a":"x"}'),
        ('{"name": "f", "arguments": {"a": "x\\\\', '{"a":"x\\\\"}'),
        ('{"name": "f", "arguments": {"a": "x\\u00', '{"a":"x"}'),
        ('{"name": "f", "arguments": {"a": "x\\\\u00', '{"a":"x\\\\u00"}'),
        ('{"name": "f", "arg', "{}"),
    ],
)
def test_calls(raw, arguments):
    assert parse_calls(raw) == (ParsedCall("f", arguments),)


def test_an_array_holds_several():
    raw = ' [{"name": "f", "arguments": {"a": [1]}, "id": "abc"}, {"name": "g"},]</s>'
    assert parse_calls(raw) == (ParsedCall("f", '{"a":[1]}'), ParsedCall("g", "{}"))
    assert parse_calls('[{"name": "f"}, {"name": "g", "arguments": {"a": 1') == (
        ParsedCall("f", "{}"),
        ParsedCall("g", '{"a":1}'),
    )
    assert isinstance(parse_calls('[{"name": "f"}, {"nam": "g"}]'), BadCall)


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        ("", "there is no JSON object in it"),
        ("[]", "there is no JSON object in it"),
        ("get_weather(city='Paris')", "there is no JSON object in it"),
        ("{}", "it has no name"),
        ('{"name": ""}', "it has no name"),
        ('{"name": 3}', "it has no name"),
        ('{"function": "f"}', "it has no name"),
        ('[{"name": "f"}, 3]', "it is not an object"),
        ('{"name": "f", "arguments": [1]}', "its arguments are not an object"),
        ('{"name": "f", "arguments": "3"}', "its arguments are not an object"),
        ('{"name": "f", "arguments": "not JSON"}', "it is not JSON"),
        ('{"name": "f" "arguments": {"name": "g"}}', "it is not JSON"),
        ("{'name': 'f'}", "it is not JSON"),
        ('{"name": "f", "arguments": {"a": NaN}}', "it is not JSON"),
        ('{"name": "f", "arguments": {"a": 1e999}}', "it is not JSON"),
        ('{"name": "f", "arguments": {"a": ' + "1" * 5000 + "}}", "it is not JSON"),
        ('{"name": "f", "arguments": {"a": ]}', "its brackets do not match"),
        ('{"name": "f", "arguments": ' + '{"a":' * 1000, "it is nested too deep"),
        (json.dumps({"name": "f", "arguments": '{"a":' * 100_000}), "it is nested too deep"),
    ],
)
def test_failures_keep_the_text(raw, why):
    assert parse_calls(raw) == BadCall(raw, why)


def test_arguments_of_a_history():
    assert parse_arguments('{"a": 1,') == {"a": 1}
    assert [parse_arguments(text) for text in ("", "[1]", "3", "{'a'}", '{"a": NaN}')] == [None] * 5


PARTS = st.sampled_from(
    [
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        '"',
        "\\",
        "\\u00",
        "name",
        '"name"',
        '"arguments"',
        "1",
        "-",
        "true",
        " ",
        "```",
        "é",
    ]
)


@settings(max_examples=500)
@given(st.text() | st.lists(PARTS, max_size=40).map("".join))
def test_any_text_is_calls_or_a_failure(raw):
    found = parse_calls(raw)
    if isinstance(found, BadCall):
        assert found.raw == raw
        return
    for call in found:
        assert call.name
        call.arguments.encode()
        assert isinstance(json.loads(call.arguments), dict)


KEYS = st.text('ab"\\{,}é\n', max_size=4)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(KEYS, VALUES, max_size=3), st.integers(0, 2), st.integers(0, 10_000))
def test_a_call_survives_its_own_beginning(arguments, indent, cut):
    """Whole, it comes back; cut anywhere, it is a call with no more in it, or a failure."""
    raw = json.dumps({"name": "f", "arguments": arguments}, ensure_ascii=indent == 2, indent=indent or None)
    (call,) = parse_calls(raw)
    assert json.loads(call.arguments) == arguments
    part = parse_calls(raw[: cut % (len(raw) + 1)])
    if not isinstance(part, BadCall):
        assert set(json.loads(part[0].arguments)) <= set(arguments)


@pytest.mark.parametrize(
    "raw",
    [
        "[" * 500_000,
        "[ " * 500_000,
        '{"a":' * 200_000,
        '{"name": "' + "\\" * 500_001,
        '{"name": "' + '\\"' * 300_000,
        '{"name": ' + "," * 500_000,
        "{" + " " * 500_000 + '"',
        '{"name": "f", "arguments": {"a": "' + "x\\u0" * 100_000,
        "`" * 500_000,
    ],
    ids=range(9),
)
def test_time_is_bounded(raw):
    started = time.monotonic()
    parse_calls(raw)
    assert time.monotonic() - started < 5
