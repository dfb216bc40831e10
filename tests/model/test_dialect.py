"""The spans of a conversation, one after the other, are the tokens of its whole rendering."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from superfluid.model.dialect import NO_DIALECT, Conversation, Dialect, dialect_of, required
from superfluid.model.masking import LEFT, RIGHT
from superfluid.model.template import ChatTemplate, TemplateError
from superfluid.model.vocabulary import Vocabulary
from superfluid.protocol.codes import Role
from superfluid.protocol.refusals import NoToolCalls, ProtocolRefusal
from tests.model import templates, tiny_gguf, tool_templates

NOW = 1_700_000_000_000
LETTERS = {"s": Role.SYSTEM, "u": Role.USER, "a": Role.ASSISTANT, "t": Role.TOOL}
TEXTS = ["hello there", "the\nmodel ", "think?", "you are\n\n- the user", "INST", "x", "1 2 3"]
EOT = {
    "CHATML": "<|im_end|>",
    "LLAMA3": "<|eot_id|>",
    "GEMMA": "<end_of_turn>",
    "QWEN3": "<|im_end|>",
}


def _before(roles="", *, finished=False, empty=None):
    shape = tuple(int(LETTERS[letter]) for letter in roles)
    return Conversation(shape, not roles if empty is None else empty, finished, NOW)


def _dialect(vocabulary: Vocabulary, source: str) -> Dialect:
    return Dialect(vocabulary, _template(vocabulary, source))


def _template(vocabulary: Vocabulary, source: str) -> ChatTemplate:
    return ChatTemplate(source, bos=vocabulary.bos_text, eos=vocabulary.eos_text)


def _whole(vocabulary: Vocabulary, source: str, order: str, *, opener: bool) -> tuple[int, ...]:
    messages = [
        {"role": LETTERS[letter].name.lower(), "content": text} for letter, text in zip(order, TEXTS, strict=False)
    ]
    text = _template(vocabulary, source).render(messages, now_ms=NOW, opener=opener)
    return _ids(vocabulary, text)


def _ids(vocabulary: Vocabulary, text: str) -> tuple[int, ...]:
    ids = vocabulary.tokenize(text, special=True)
    if vocabulary.adds_bos and ids[:1] != [vocabulary.bos]:
        ids.insert(0, vocabulary.bos)
    return tuple(ids)


def _spans(dialect: Dialect, order: str, *, opener: bool) -> tuple[int, ...]:
    ids: list[int] = []
    for index, letter in enumerate(order):
        ids += dialect.message(_before(order[:index]), LETTERS[letter], TEXTS[index])
    if opener:
        ids += dialect.opener(_before(order))
    return tuple(ids)


def _shown(vocabulary: Vocabulary, ids) -> str:
    return "".join(map(vocabulary.spell, ids))


@pytest.mark.parametrize("order", ["u", "su", "ua", "uau", "suau", "suauau"])
@pytest.mark.parametrize(
    ("vocabulary", "source"),
    [
        *itertools.product(["spm", "bpe"], ["CHATML", "CHATML_DEFAULT_SYSTEM", "LLAMA3", "GEMMA", "MISTRAL_V1"]),
        *itertools.product(["gemma"], ["CHATML", "GEMMA", "MISTRAL_V1"]),
        *itertools.product(["smollm"], ["CHATML", "CHATML_DEFAULT_SYSTEM", "GEMMA", "MISTRAL_V1"]),
    ],
    indirect=["vocabulary"],
)
def test_spans_make_up_the_whole_rendering(vocabulary, source, order):
    source = getattr(templates, source)
    dialect = _dialect(vocabulary, source)
    opener = order.endswith("u")
    got, want = _spans(dialect, order, opener=opener), _whole(vocabulary, source, order, opener=opener)
    assert _shown(vocabulary, got) == _shown(vocabulary, want)
    assert got == want


@pytest.mark.parametrize("order", ["u", "su", "ua", "uau", "suau", "uu", "uss", "aua"])
def test_spans_of_the_embedded_model(smollm, order):
    dialect = required(dialect_of(smollm))
    assert _spans(dialect, order, opener=True) == _whole(smollm, smollm.template, order, opener=True)


@pytest.mark.parametrize(
    ("vocabulary", "source"),
    [
        *itertools.product(["spm", "bpe"], ["CHATML", "CHATML_CLOSED_LATE", "LLAMA3", "GEMMA", "MISTRAL_V1"]),
        ("gemma", "GEMMA"),
        ("gemma", "MISTRAL_V1"),
        ("smollm", "CHATML"),
    ],
    indirect=["vocabulary"],
)
def test_a_drawn_reply_and_what_follows_make_up_the_whole(vocabulary, source):
    eot = EOT.get(source.split("_")[0], vocabulary.eos_text)
    text = getattr(templates, source)
    dialect = _dialect(vocabulary, text)
    ids = [*dialect.message(_before(), Role.USER, TEXTS[0]), *dialect.opener(_before("u"))]
    reply = " " + TEXTS[1] if source == "MISTRAL_V1" else TEXTS[1]
    ids += vocabulary.tokenize_after("]" if source == "MISTRAL_V1" else "\n", reply.rstrip(), special=False)
    ids.append(vocabulary.control[eot])
    ids += dialect.message(_before("ua", finished=True), Role.USER, TEXTS[2])
    ids += dialect.opener(_before("uau"))
    messages = [
        {"role": role, "content": content.rstrip()}
        for role, content in zip(("user", "assistant", "user"), TEXTS, strict=False)
    ]
    whole = _template(vocabulary, text).render(messages, now_ms=NOW, opener=True)
    assert _shown(vocabulary, ids) == _shown(vocabulary, _ids(vocabulary, whole))


def test_an_opener_after_a_finished_turn_begins_with_the_separator(bpe):
    dialect = _dialect(bpe, templates.CHATML)
    assert _shown(bpe, dialect.opener(_before("ua", finished=True))) == "\n<|im_start|>assistant\n"
    assert _shown(bpe, dialect.opener(_before("u"))) == "<|im_start|>assistant\n"


def test_a_message_after_a_cut_reply_comes_without_separator(bpe):
    dialect = _dialect(bpe, templates.CHATML)
    assert _shown(bpe, dialect.message(_before("ua"), Role.USER, "x")) == "<|im_start|>user\nx<|im_end|>\n"
    assert _shown(bpe, dialect.message(_before("ua", finished=True), Role.USER, "x")) == (
        "\n<|im_start|>user\nx<|im_end|>\n"
    )


@pytest.mark.parametrize("source", ["CHATML_DEFAULT_SYSTEM", "LLAMA3", "GEMMA", "MISTRAL_V1"])
def test_no_prologue_lands_after_raw_tokens(spm, source):
    dialect = _dialect(spm, getattr(templates, source))
    ids = dialect.message(_before(empty=False), Role.USER, "hello")
    assert spm.bos not in ids
    assert "system" not in _shown(spm, ids)
    assert "hello" in _shown(spm, ids)
    assert dialect.opener(_before(empty=False)) is not None


@pytest.mark.parametrize("source", ["CHATML", "LLAMA3", "GEMMA"])
def test_the_bos_comes_once(spm, source):
    ids = _dialect(spm, getattr(templates, source)).message(_before(), Role.USER, "hello")
    assert ids[0] == spm.bos
    assert ids.count(spm.bos) == 1


def test_a_folded_system_text_is_not_lost(spm):
    dialect = _dialect(spm, templates.MISTRAL_V1)
    system = dialect.message(_before(), Role.SYSTEM, "the system")
    user = dialect.message(_before("s"), Role.USER, "hello")
    assert _shown(spm, system) == "<s> [INST] the system\n\n"
    assert _shown(spm, user) == "hello [/INST]"


def test_an_opener_after_a_folded_system_text_closes_its_turn(gemma):
    dialect = _dialect(gemma, templates.GEMMA)
    assert _shown(gemma, dialect.opener(_before("s"))) == "<end_of_turn>\n<start_of_turn>model\n"


def test_a_system_text_that_moves_to_the_last_turn_is_left_where_it_was(spm):
    dialect = _dialect(spm, templates.MISTRAL_LATE)
    spans = [dialect.message(_before(), Role.SYSTEM, "the system")]
    spans.append(dialect.message(_before("s"), Role.USER, "hello"))
    spans.append(dialect.message(_before("sua", finished=True), Role.USER, "there"))
    assert [_shown(spm, span) for span in spans] == [
        "<s> [INST] the system\n\n",
        "hello [/INST]",
        " [INST] there [/INST]",
    ]


def test_reasoning_that_a_template_drops_later_does_not_shift_spans(bpe):
    dialect = _dialect(bpe, templates.QWEN3)
    assert _shown(bpe, dialect.message(_before("ua", finished=True), Role.USER, "x")) == (
        "\n<|im_start|>user\nx<|im_end|>\n"
    )
    assert _shown(bpe, dialect.message(_before("ua"), Role.USER, "x")) == "<|im_start|>user\nx<|im_end|>\n"
    assert _shown(bpe, dialect.message(_before("u"), Role.ASSISTANT, "<think>\nthe\n</think>\n\nyou")) == (
        "<|im_start|>assistant\n<think>\nthe\n</think>\n\nyou<|im_end|>\n"
    )
    assert _shown(bpe, dialect.opener(_before("uaua", finished=True))) == "\n<|im_start|>assistant\n"


def test_a_refusal_carries_the_templates_text(spm):
    dialect = _dialect(spm, templates.GEMMA)
    with pytest.raises(ProtocolRefusal, match="Conversation roles must alternate"):
        dialect.message(_before("u"), Role.USER, "hello")
    with pytest.raises(ProtocolRefusal, match="Conversation roles must alternate"):
        dialect.message(_before(), Role.ASSISTANT, "hello")
    refuses = _dialect(spm, templates.RAISES_ON_SYSTEM)
    with pytest.raises(ProtocolRefusal, match="System role not supported"):
        refuses.message(_before(), Role.SYSTEM, "hello")
    assert refuses.message(_before(), Role.USER, "hello")


def test_a_system_message_that_would_vanish_is_refused(bpe):
    dialect = _dialect(bpe, templates.DROPS_SYSTEM)
    for before in (_before(), _before("ua"), _before(empty=False)):
        with pytest.raises(ProtocolRefusal, match="leaves out a system message"):
            dialect.message(before, Role.SYSTEM, "hello")
    assert "hello" in _shown(bpe, dialect.message(_before("ua"), Role.USER, "hello"))


def test_a_history_that_the_template_would_refuse_does_not_end_the_session(spm):
    """A rebase may leave two user turns in a row."""
    dialect = _dialect(spm, templates.GEMMA)
    assert _shown(spm, dialect.opener(_before("uu"))).endswith("<start_of_turn> model\n")
    assert "hello" in _shown(spm, dialect.message(_before("uuua", finished=True), Role.USER, "hello"))


@pytest.mark.parametrize("source", ["CHATML_DEFAULT_SYSTEM", "LLAMA3", "GEMMA", "MISTRAL_V1", "QWEN3"])
def test_a_long_history_gives_the_spans_of_a_short_one(bpe, source):
    dialect = _dialect(bpe, getattr(templates, source))
    for head in ("", "s"):
        short, long = _before(head + "uaua", finished=True), _before(head + "ua" * 20_000, finished=True)
        assert dialect.message(long, Role.USER, "hello") == dialect.message(short, Role.USER, "hello")
        assert dialect.opener(long) == dialect.opener(short)


def test_empty_and_blank_texts_render(vocabulary):
    dialect = _dialect(vocabulary, templates.GEMMA)
    for text in ("", " ", "\n\n"):
        assert "user" in _shown(vocabulary, dialect.message(_before(), Role.USER, text))
        assert dialect.message(_before("s"), Role.USER, text)


def test_the_clock_is_the_sessions(bpe):
    dialect = _dialect(bpe, templates.LLAMA3)
    assert "14 Nov 2023" in _shown(bpe, dialect.message(_before(), Role.USER, "x"))


def test_orders_are_probed(bpe):
    assert _dialect(bpe, templates.CHATML).orders == {"u a u", "s u a u", "u u"}
    assert _dialect(bpe, templates.GEMMA).orders == {"u a u", "s u a u"}
    assert _dialect(bpe, templates.RAISES_ON_SYSTEM).orders == {"u a u", "u u"}


def test_the_digest_names_template_and_vocabulary(bpe, spm):
    one = _dialect(bpe, templates.CHATML)
    assert one.digest == _dialect(bpe, templates.CHATML).digest
    assert len({one.digest, _dialect(bpe, templates.GEMMA).digest, _dialect(spm, templates.CHATML).digest}) == 3
    assert 0 <= one.digest < 1 << 64


def test_an_unknown_role_is_refused(bpe):
    with pytest.raises(ProtocolRefusal, match="role 9"):
        _dialect(bpe, templates.CHATML).message(_before(), 9, "x")


@pytest.mark.parametrize("source", [templates.ALWAYS_RAISES, "{% if %}", "nothing of it"])
def test_a_template_that_does_not_work_is_none(tmp_path, caplog, source):
    with Vocabulary(tiny_gguf.write(tmp_path / "m.gguf", template=source)) as vocabulary:
        assert dialect_of(vocabulary) is None
        with pytest.raises(TemplateError):
            _dialect(vocabulary, source)
    assert "cannot be used" in caplog.text


def test_a_model_without_template_says_what_to_do(gemma):
    assert dialect_of(gemma) is None
    with pytest.raises(ProtocolRefusal, match="use Append") as refusal:
        required(None)
    assert NO_DIALECT in str(refusal.value)


def test_tools_come_with_the_first_message(bpe):
    dialect = _dialect(bpe, tool_templates.HERMES)
    tools = [{"type": "function", "function": {"name": "a<|im_end|>", "parameters": {"<s>": 1}}}]
    ids = dialect.message(_before(), Role.SYSTEM, "hello", tools)
    shown = _shown(bpe, ids)
    assert shown.startswith("<|im_start|>system\nhello\n\n# Tools")
    assert '{"type": "function", "function": {"name": "a<|im_end|>", "parameters": {"<s>": 1}}}' in shown
    assert ids.count(bpe.control["<|im_end|>"]) == 1
    assert bpe.bos not in ids
    deep: dict = {}
    for _ in range(5000):
        deep = {"a": deep}
    with pytest.raises(ProtocolRefusal, match="too deep"):
        dialect.message(_before(), Role.SYSTEM, "hello", [deep])
    with pytest.raises(NoToolCalls, match="no place for tools"):
        _dialect(bpe, templates.CHATML).message(_before(), Role.SYSTEM, "hello", tools)
    with pytest.raises(NoToolCalls, match="leaves out the tool calls"):
        _dialect(bpe, templates.CHATML_TOOLS).message(_before(), Role.SYSTEM, "hello", tools)


SOURCES = [
    source
    for name, source in (*vars(templates).items(), *vars(tool_templates).items())
    if name[0].isupper() and source not in (templates.ALWAYS_RAISES, templates.CHATML_TOOLS)
]
# a template whose output hangs on the text itself
FICKLE = "{% if messages[-1].content | length < 9 %}{{ messages | length }}{% endif %}" + templates.CHATML


@settings(max_examples=300)
@given(
    source=st.sampled_from([*SOURCES, FICKLE]),
    roles=st.lists(st.integers(0, 3), max_size=12).map(tuple),
    empty=st.booleans(),
    finished=st.booleans(),
    role=st.integers(0, 3),
    text=st.sampled_from(["", " ", "hello", "<|im_end|>", "</think>x", "a longer text, with words"]),
)
def test_any_shape_gives_a_span_or_a_refusal(spm, source, roles, empty, finished, role, text):
    dialect = _dialect(spm, source)
    before = Conversation(roles, empty and not roles, finished and bool(roles), NOW)
    for call in (
        lambda: dialect.message(before, role, text),
        lambda: dialect.opener(before),
        lambda: dialect.tool_result(before, "f", text, 7),
        lambda: dialect.called(before, text, [("f", '{"a": 1}'), ("g", text)]),
    ):
        try:
            span = call()
        except (ProtocolRefusal, NoToolCalls):
            continue
        shown = _shown(spm, span)
        assert LEFT not in shown
        assert RIGHT not in shown
