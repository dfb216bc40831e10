"""The call format is what the model's own template writes; what is not known here is named."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from superfluid.model.callformat import CallFormat, NoCalls, call_begins, learn
from superfluid.model.template import ChatTemplate
from tests.model import templates, tool_templates

HERMES = CallFormat("hermes", "<tool_call>", "</tool_call>")
LLAMA = CallFormat("llama3", "<|python_tag|>", None, bare=True, parallel=False)
MISTRAL = CallFormat("mistral", "[TOOL_CALLS]", None)


def _learn(source):
    return learn(ChatTemplate(source, bos="<s>", eos="</s>"))


@pytest.mark.parametrize(
    ("source", "want"),
    [
        ("HERMES", HERMES),
        ("REASONS", HERMES),
        ("ALWAYS_REASONS", HERMES),
        ("WANTS_TEXT", CallFormat("hermes", "<tool_call>", "</tool_call>", as_text=True)),
        ("LLAMA", LLAMA),
        ("LLAMA_TAGGED", LLAMA),
        ("MISTRAL", MISTRAL),
    ],
)
def test_the_three_formats(source, want):
    assert _learn(getattr(tool_templates, source)) == want


@pytest.mark.parametrize(
    ("source", "found"),
    [
        (tool_templates.TAGGED_XML, "a format that is not known here: .*<function=probe_tool>"),
        (tool_templates.WITHOUT_ARRAY, r"a format that is not known here: .*probe_tool\[ARGS\]"),
        (tool_templates.LEAVES_OUT, "leaves out the tool calls"),
        (tool_templates.REFUSES, "refuses an assistant message with a tool call: no calls please"),
        (templates.CHATML, "no place for tools"),
        (templates.GEMMA, "no place for tools"),
        (templates.ALWAYS_RAISES, "no place for tools"),
    ],
)
def test_what_else_a_template_does_is_named(source, found):
    learned = _learn(source)
    assert isinstance(learned, NoCalls)
    with pytest.raises(AssertionError, match=found):
        raise AssertionError(learned.found)


@pytest.mark.parametrize("key", ["parameters", "arguments"])
@pytest.mark.parametrize("indent", [None, 2])
def test_a_call_without_marker_is_told_by_its_beginning(key, indent):
    text = json.dumps({"name": "get.it_1", key: {"a": 1}}, indent=indent)
    decided = text.index(key) + len(key) + 1
    assert {call_begins(text[:end]) for end in range(1, decided)} == {None}
    assert {call_begins(text[:end]) for end in range(decided, len(text) + 1)} == {True}


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "Bob", "age": 3}',
        '{"a": 1}',
        "{}",
        "Hello {",
        "[",
        '{"name": 3',
        '{"name": ""',
        '{"name": "x y"',
        " {",
    ],
)
def test_other_json_is_text(text):
    assert call_begins(text) is False
    assert call_begins('{"name": "' + "x" * 600) is False
    assert call_begins("{" + " " * 600) is False


@given(st.text('{"name: f,prti\n}', max_size=30))
def test_a_verdict_stays(text):
    verdicts = [call_begins(text[:end]) for end in range(1, len(text) + 1)]
    decided = [verdict for verdict in verdicts if verdict is not None]
    assert len(set(decided)) <= 1
    assert verdicts == [None] * (len(verdicts) - len(decided)) + decided
