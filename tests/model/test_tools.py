"""Tool declarations of every usual shape end as OpenAI's; what is none is named with its index (wire-facts 8.5)."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from superfluid.model.tools import parse_tools
from superfluid.protocol.refusals import BadTool

SCHEMA = {"type": "object", "properties": {"z": {"type": "string"}, "a": {"type": "integer"}}, "required": ["z"]}


@pytest.mark.parametrize(
    ("given", "want"),
    [
        (
            {"type": "function", "function": {"name": "f", "parameters": SCHEMA, "strict": True}, "x": 1},
            {"type": "function", "function": {"name": "f", "parameters": SCHEMA, "strict": True}, "x": 1},
        ),
        ({"function": {"name": "f"}}, {"function": {"name": "f"}}),
        (
            {"parameters": SCHEMA, "name": "f", "description": "d", "more": []},
            {"type": "function", "function": {"parameters": SCHEMA, "name": "f", "description": "d", "more": []}},
        ),
        ({"type": "function", "name": "f"}, {"type": "function", "function": {"name": "f"}}),
        (
            {"name": "f", "input_schema": SCHEMA, "description": "d", "cache_control": {}},
            {"type": "function", "function": {"name": "f", "description": "d", "parameters": SCHEMA}},
        ),
        (
            {"input_schema": SCHEMA, "name": "f"},
            {"type": "function", "function": {"name": "f", "description": "", "parameters": SCHEMA}},
        ),
    ],
)
def test_shapes(given, want):
    (tool,) = parse_tools([json.dumps(given)])
    assert json.dumps(tool) == json.dumps(want)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "it is not JSON"),
        ("", "it is not JSON"),
        ('{"name": "f", "x": NaN}', "it is not JSON"),
        ('{"name": "\\ud800"}', "it is not JSON"),
        ('{"name": "\ud800"}', "it is not JSON"),
        ('{"a":' * 100_000, "it is nested too deep"),
        ("[]", "it is not a JSON object"),
        ('"f"', "it is not a JSON object"),
        ('{"type": "custom", "name": "f"}', 'its type is not "function"'),
        ('{"type": null, "name": "f"}', 'its type is not "function"'),
        ('{"function": "f"}', "its function is not an object"),
        ('{"function": null, "name": "f"}', "its function is not an object"),
        ('{"function": {"name": ""}}', "it has no name"),
        ('{"function": {}, "name": "f"}', "it has no name"),
        ("{}", "it has no name"),
        ('{"name": 3}', "it has no name"),
        ('{"input_schema": {}}', "it has no name"),
        ('{"name": "f", "parameters": []}', "its parameters are not an object"),
        ('{"name": "f", "input_schema": null}', "its parameters are not an object"),
        ('{"function": {"name": "f", "parameters": null}}', "its parameters are not an object"),
    ],
)
def test_the_first_bad_one_is_named(text, why):
    with pytest.raises(BadTool) as refusal:
        parse_tools(['{"name": "fine"}', text, "{"])
    assert str(refusal.value) == f"tool 1 is not a function declaration: {why}"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "function", "name", "parameters", "input_schema", "x"]), inner, max_size=4
        )
    ),
    max_leaves=8,
)


@given(JSON)
def test_any_value_is_a_tool_or_refused(value):
    try:
        (tool,) = parse_tools([json.dumps(value)])
    except BadTool:
        return
    assert tool["function"]["name"]
    assert parse_tools([json.dumps(tool)]) == (tool,)
