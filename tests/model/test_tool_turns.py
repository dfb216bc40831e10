"""Tool calls and results as turns of a conversation, and a call's way through template, splitter and parser."""

import itertools
import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from superfluid.model.callparse import ParsedCall, parse_calls
from superfluid.model.dialect import Conversation, Dialect
from superfluid.model.template import ChatTemplate
from superfluid.model.turns import call_name
from superfluid.model.vocabulary import Vocabulary
from superfluid.protocol.codes import Channel, Role
from superfluid.protocol.refusals import NoToolCalls, ProtocolRefusal
from tests.model import templates, tiny_gguf, tool_templates

NOW = 1_700_000_000_000
LETTERS = {"s": Role.SYSTEM, "u": Role.USER, "a": Role.ASSISTANT, "t": Role.TOOL}
MARKERS = ("<|python_tag|>", "[TOOL_CALLS]", "<tool_call>", "</tool_call>", "<think>", "</think>")
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]
STYLES = ["HERMES", "LLAMA", "LLAMA_TAGGED", "MISTRAL"]
NESTED = {
    "q": 'say "hi"\n\\ and é🎉',
    "deep": {"list": [1, -2.5, None, {"": True}], "tab": "\t"},
    "<": "<|im_end|></s>",
}


@pytest.fixture(scope="module")
def marked(models):
    """As `bpe`, with the markers of all formats as control tokens."""
    path = tiny_gguf.write(models / "marked.gguf", eos="<|im_end|>", extra_controls=MARKERS)
    with Vocabulary(path) as vocabulary:
        yield vocabulary


@pytest.fixture(params=["spm", "bpe", "marked"])
def tiny(request):
    return request.getfixturevalue(request.param)


def _dialect(vocabulary, style):
    return Dialect(vocabulary, _template(vocabulary, style))


def _template(vocabulary, style):
    return ChatTemplate(getattr(tool_templates, style), bos=vocabulary.bos_text, eos=vocabulary.eos_text)


def _before(roles="", *, finished=False):
    return Conversation(tuple(LETTERS[letter] for letter in roles), not roles, finished, NOW)


def _shown(vocabulary, ids):
    return "".join(map(vocabulary.spell, ids))


def _call(arguments, call_id="000000000"):
    return {"id": call_id, "type": "function", "function": {"name": "look", "arguments": arguments}}


@pytest.mark.parametrize("style", STYLES)
def test_the_spans_of_a_tool_session_make_up_the_whole_rendering(tiny, style):
    dialect, template = _dialect(tiny, style), _template(tiny, style)
    messages = [
        {"role": "system", "content": "you are there"},
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": "", "tool_calls": [_call({"a": "the"})]},
        {"role": "tool", "content": "the model", "name": "look", "tool_call_id": "000000003"},
    ]
    ids = [*dialect.message(_before(), Role.SYSTEM, "you are there", TOOLS)]
    ids += dialect.message(_before("s"), Role.USER, "hello")
    ids += dialect.opener(_before("su"))
    # what the model draws: its reply as the template writes it, up to the token that ends it
    asked = template.render(messages[:2], now_ms=NOW, tools=TOOLS, opener=True)
    reply = template.render(messages[:3], now_ms=NOW, tools=TOOLS)[len(asked) :].rstrip()
    ids += tiny.tokenize_after(asked[-16:], reply, special=True)
    assert ids[-1] in (*tiny.end_tokens, tiny.control["<|im_end|>"], tiny.control["<|eot_id|>"])
    ends = ids[-1] in tiny.end_tokens
    ids += dialect.tool_result(_before("sua", finished=ends), "look", "the model", 3)
    ids += dialect.opener(_before("suat"))
    whole = template.render(messages, now_ms=NOW, tools=TOOLS, opener=True)
    shown = _shown(tiny, ids)
    if not ends and whole != shown:
        # this vocabulary does not know the template's end of turn, so no separator was due
        shown = shown.replace("<|im_end|><|im_start|>", "<|im_end|>\n<|im_start|>")
    assert shown == _shown(tiny, _ids(tiny, whole))


def _ids(vocabulary, text):
    ids = vocabulary.tokenize(text, special=True)
    return [vocabulary.bos, *ids] if vocabulary.adds_bos and ids[:1] != [vocabulary.bos] else ids


def test_every_result_of_a_merging_template_is_a_turn_of_its_own(bpe):
    dialect = _dialect(bpe, "HERMES")
    first = dialect.tool_result(_before("ua", finished=True), "look", "one", 4)
    second = dialect.tool_result(_before("uat"), "look", "two", 6)
    block = "<|im_start|>user\n<tool_response>\n{}\n</tool_response><|im_end|>\n"
    assert _shown(bpe, first) == "\n" + block.format("one")
    assert _shown(bpe, second) == block.format("two")
    assert _shown(bpe, dialect.opener(_before("uatt"))) == "<|im_start|>assistant\n"
    assert _shown(bpe, dialect.message(_before("uatt"), Role.USER, "x")) == "<|im_start|>user\nx<|im_end|>\n"
    assert "u a+call t t" in dialect.orders


def test_results_of_templates_that_only_add(bpe):
    llama = _dialect(bpe, "LLAMA")
    block = "<|start_header_id|>ipython<|end_header_id|>\n\n{}<|eot_id|>"
    for roles, finished in (("ua", False), ("uat", False), ("uatt", False)):
        span = llama.tool_result(_before(roles, finished=finished), "look", "one")
        assert _shown(bpe, span) == block.format("one")
    assert "u a+call t t" in llama.orders
    mistral = _dialect(bpe, "MISTRAL")
    spans = [mistral.tool_result(_before(roles), "look", 'a "b"', 7) for roles in ("ua", "uat")]
    assert {_shown(bpe, span) for span in spans} == {
        '[TOOL_RESULTS] {"content": "a \\"b\\"", "call_id": "000000007"}[/TOOL_RESULTS]'
    }
    assert mistral.opener(_before("uat")) == ()
    assert '"call_id": "000000000"' in _shown(bpe, mistral.message(_before("ua"), Role.TOOL, "x"))
    assert '"content": ""' in _shown(bpe, mistral.tool_result(_before("ua"), "look", ""))
    assert _shown(bpe, mistral.message(_before("uata", finished=True), Role.USER, "x")) == "[INST] x[/INST]"


def test_a_result_after_a_cut_reply_comes_without_separator(bpe):
    for style in ("HERMES", "REASONS"):
        dialect = _dialect(bpe, style)
        shown = _shown(bpe, dialect.tool_result(_before("ua"), "look", "one"))
        assert shown == "<|im_start|>user\n<tool_response>\none\n</tool_response><|im_end|>\n"
        finished = _shown(bpe, dialect.tool_result(_before("ua", finished=True), "look", "one"))
        assert finished == "\n" + shown


@pytest.mark.parametrize("style", [*STYLES, "REASONS", "WANTS_TEXT"])
def test_a_long_chain_of_calls_gives_the_spans_of_a_short_one(bpe, style):
    dialect = _dialect(bpe, style)
    for head in ("u", "su"):
        short, long = _before(head + "ata", finished=True), _before(head + "at" * 2000 + "a", finished=True)
        assert dialect.tool_result(long, "look", "one") == dialect.tool_result(short, "look", "one")
        short, long = _before(head + "at"), _before(head + "at" * 2000)
        assert dialect.opener(long) == dialect.opener(short)


@pytest.mark.parametrize("style", STYLES)
def test_nothing_in_names_arguments_results_and_schemas_is_a_control_token(marked, style):
    dialect = _dialect(marked, style)
    evil = "".join(marked.control)
    controls = marked.control_ids

    def control(ids):
        return [token for token in ids if token in controls]

    def pair(text):
        tool = {"type": "function", "function": {"name": text, "parameters": {text: [text]}, "description": text}}
        call = (text, json.dumps({text: {text: [text]}}))
        return (
            dialect.message(_before(), Role.SYSTEM, text, [tool]),
            dialect.called(_before("u"), text, [call]),
            dialect.called(_before("u"), "", [(text, "{" + text)]),
            dialect.tool_result(_before("ua", finished=True), text, text),
        )

    for fine, bad in zip(pair("look"), pair(evil), strict=True):
        assert control(bad) == control(fine)
        assert evil in _shown(marked, bad) or style != "HERMES"


@pytest.mark.parametrize("style", [*STYLES, "WANTS_TEXT"])
@pytest.mark.parametrize("arguments", ["", "{", '{"a": ', "[1]", "nonsense", '{"a": NaN}', "[" * 100_000])
def test_broken_arguments_in_a_history_are_rendered_all_the_same(bpe, style, arguments):
    span = _dialect(bpe, style).called(_before("u"), "", [("look", arguments)])
    assert "look" in _shown(bpe, span)
    assert _dialect(bpe, style).opener(_before("uat")) is not None


def test_arguments_that_a_template_cannot_write_are_left_out(bpe):
    source = tool_templates.HERMES.replace("function.arguments is string", "false").replace(
        "function.arguments | tojson", "dict(function.arguments.items()) | tojson"
    )
    dialect = Dialect(bpe, ChatTemplate(source))
    shown = _shown(bpe, dialect.called(_before("u"), "", [("look", "nonsense")]))
    assert '{"name": "look", "arguments": {}}' in shown


def test_a_model_without_tool_calls_says_so(bpe):
    dialect = Dialect(bpe, ChatTemplate(templates.CHATML))
    with pytest.raises(NoToolCalls, match="this model cannot call tools: its chat template has no place"):
        dialect.called(_before("u"), "", [("look", "{}")])
    # a result without the call that asked for it is a message like any other
    assert _shown(bpe, dialect.tool_result(_before("ua"), "look", "x")) == "<|im_start|>tool\nx<|im_end|>\n"
    with pytest.raises(ProtocolRefusal, match="role 9"):
        dialect.message(_before("ua"), 9, "x")


def test_a_header_that_opens_the_reasoning_is_known(tiny):
    dialect = _dialect(tiny, "ALWAYS_REASONS")
    stream = [*dialect.message(_before(), Role.USER, "what is <think>?"), *dialect.opener(_before("u"))]
    assert dialect.channels.splitter(tiny.piece, stream).channel is Channel.REASONING
    assert dialect.channels.splitter(tiny.piece, stream[:-1]).channel is Channel.TEXT
    stream = [*dialect.tool_result(_before("ua", finished=True), "look", "x"), *dialect.opener(_before("uat"))]
    assert dialect.channels.splitter(tiny.piece, stream).channel is Channel.REASONING
    assert _dialect(tiny, "REASONS").channels.opened == ()
    assert _dialect(tiny, "LLAMA").channels.opened == ()


def test_call_names_are_nine_digits():
    assert [call_name(number) for number in (0, 7, 10**9 - 1, 10**12 + 3)] == [
        "000000000",
        "000000007",
        "999999999",
        "000000003",
    ]


# ---- there and back


def _drawn(dialect, name, arguments, text=""):
    """The tokens that a model would draw to make this call."""
    span = dialect.called(_before("u"), text, [(name, arguments)])
    return span[len(dialect.opener(_before("u"))) :]


def _parsed(splitter, tokens):
    runs = []
    for token in tokens:
        splitter.feed(token)
        runs += splitter.runs()
    splitter.flush()
    runs += splitter.runs()
    assert [token for run in runs for token in run.tokens] == list(tokens)
    return [call for run in runs if run.call is not None for call in parse_calls(run.call)]


@pytest.mark.parametrize("style", [*STYLES, "WANTS_TEXT", "REASONS"])
def test_a_call_comes_back(tiny, style):
    dialect = _dialect(tiny, style)
    compact = json.dumps(NESTED, ensure_ascii=False, separators=(",", ":"))
    for arguments in (compact, json.dumps(NESTED), json.dumps(NESTED, indent=2), "{}"):
        want = ParsedCall("look", json.dumps(json.loads(arguments), ensure_ascii=False, separators=(",", ":")))
        tokens = _drawn(dialect, "look", arguments)
        assert _parsed(dialect.channels.splitter(tiny.piece), tokens) == [want]


@pytest.mark.parametrize("style", [*STYLES, "REASONS", "WANTS_TEXT"])
def test_a_call_comes_back_byte_by_byte(bpe, style):
    """Cut at every byte and continued there, by a model that spells its markers."""
    dialect = _dialect(bpe, style)
    compact = json.dumps(NESTED, ensure_ascii=False, separators=(",", ":"))
    arguments = compact if style == "WANTS_TEXT" else NESTED
    messages = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": "", "tool_calls": [_call(arguments)]},
    ]
    template = _template(bpe, style)
    reply = template.render(messages, now_ms=NOW)[len(template.render(messages[:1], now_ms=NOW, opener=True)) :]
    data = re.sub(r"(<\|im_end\|>|<\|eot_id\|>)\s*\Z", "", reply).encode()

    def piece(token):
        return bytes([token])

    for cut in range(len(data) + 1):
        first, second = dialect.channels.splitter(piece), dialect.channels.splitter(piece)
        for token in data[:cut]:
            first.feed(token)
        second.restore(data[:cut])
        for token in data[cut:]:
            second.feed(token)
        second.flush()
        runs = [*first.runs(), *second.runs()]
        assert bytes(token for run in runs for token in run.tokens) == data
        (raw,) = [run.call for run in runs if run.call is not None]
        assert parse_calls(raw) == (ParsedCall("look", compact),)


def test_text_and_several_calls(tiny):
    dialect = _dialect(tiny, "HERMES")
    span = dialect.called(_before("u"), "let me see", [("f", '{"a":1}'), ("g", '{"b":{}}')])
    splitter = dialect.channels.splitter(tiny.piece)
    shown = [piece for token in span for piece in splitter.feed(token)]
    assert [run.call and parse_calls(run.call) for run in splitter.runs() if run.call] == [
        (ParsedCall("f", '{"a":1}'),),
        (ParsedCall("g", '{"b":{}}'),),
    ]
    text = "".join(text for channel, text in shown if channel is Channel.TEXT)
    assert text.strip().endswith("let me see")
    mistral = _dialect(tiny, "MISTRAL")
    span = mistral.called(_before("u"), "", [("f", '{"a":1}'), ("g", '{"b":{}}')])
    assert _parsed(mistral.channels.splitter(tiny.piece), span) == [
        ParsedCall("f", '{"a":1}'),
        ParsedCall("g", '{"b":{}}'),
    ]


STRINGS = st.text(st.sampled_from('ab"\\{}[]:,\n\té🎉<>/ '), max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | STRINGS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(STRINGS, inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=150)
@given(st.sampled_from(STYLES), st.dictionaries(STRINGS, VALUES, max_size=3), st.booleans())
def test_any_call_comes_back(bpe, style, arguments, ascii_only):
    dialect = _cached(bpe, style)
    want = json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))
    tokens = _drawn(dialect, "look_2", json.dumps(arguments, ensure_ascii=ascii_only))
    for step in (1, 3):
        splitter = dialect.channels.splitter(bpe.piece)
        runs = []
        for batch in itertools.zip_longest(*[iter(tokens)] * step):
            for token in batch:
                if token is not None:
                    splitter.feed(token)
            runs += splitter.runs()
        splitter.flush()
        runs += splitter.runs()
        (raw,) = [run.call for run in runs if run.call is not None]
        assert parse_calls(raw) == (ParsedCall("look_2", want),)


_DIALECTS: dict[str, Dialect] = {}


def _cached(vocabulary, style):
    if style not in _DIALECTS:
        _DIALECTS[style] = _dialect(vocabulary, style)
    return _DIALECTS[style]
