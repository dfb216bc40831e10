"""A user turn that holds data: opened by the first batch, filled line by line, closed by what comes after it."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from superfluid.model.dialect import Conversation, Dialect
from superfluid.model.masking import HERE, Tokenizer
from superfluid.model.template import ChatTemplate
from superfluid.model.vocabulary import Vocabulary
from superfluid.protocol.codes import Role
from tests.model import templates, tool_templates

NOW = 1_700_000_000_000
LETTERS = {"s": Role.SYSTEM, "u": Role.USER, "a": Role.ASSISTANT}
TEXTS = {"s": "you are", "u": "hello there", "a": "the model"}
LINES = ("AAPL 231.10 +0.4%", "MSFT 415.22 -0.1%")
QUESTION = "Which one moved?"
END = {"CHATML": "<|im_end|>", "LLAMA3": "<|eot_id|>", "GEMMA": "<end_of_turn>", "QWEN3": "<|im_end|>"}
STABLE = ("CHATML", "CHATML_DEFAULT_SYSTEM", "CHATML_CLOSED_LATE", "LLAMA3", "GEMMA", "MISTRAL_V1")
TEMPLATES = (*STABLE, "QWEN3")
EVERYWHERE = [*itertools.product(["spm", "bpe"], STABLE), ("smollm", "CHATML"), ("gemma", "GEMMA")]


def _shape(order: str, *, finished: bool = False) -> Conversation:
    return Conversation(tuple(int(LETTERS[letter]) for letter in order), not order, finished, NOW)


def _template(vocabulary: Vocabulary, source: str) -> ChatTemplate:
    return ChatTemplate(source, bos=vocabulary.bos_text, eos=vocabulary.eos_text)


def _shown(vocabulary: Vocabulary, ids) -> str:
    return "".join(map(vocabulary.spell, ids))


def _message(letter: str, text: str) -> dict[str, str]:
    return {"role": LETTERS[letter].name.lower(), "content": text}


def _rendered(vocabulary: Vocabulary, source: str, order: str, *more: tuple[str, str], opener: bool = False) -> str:
    """How the template writes the whole, as tokens show it."""
    messages = [*(_message(letter, TEXTS[letter]) for letter in order), *itertools.starmap(_message, more)]
    text = _template(vocabulary, source).render(messages, now_ms=NOW, opener=opener)
    ids = vocabulary.tokenize(text, special=True)
    if vocabulary.adds_bos and ids[:1] != [vocabulary.bos]:
        ids.insert(0, vocabulary.bos)
    return _shown(vocabulary, ids)


def _spans(dialect: Dialect, order: str) -> list[int]:
    ids: list[int] = []
    for place, letter in enumerate(order):
        ids += dialect.message(_shape(order[:place]), LETTERS[letter], TEXTS[letter])
    return ids


def _lines(vocabulary: Vocabulary, lines=LINES) -> list[int]:
    tokenizer = Tokenizer(vocabulary)
    return [token for line in lines for token in tokenizer.ids(tokenizer.masks.mask(line + "\n"), before="\n")]


@pytest.mark.parametrize("order", ["", "s", "ua", "sua"])
@pytest.mark.parametrize(("vocabulary", "source"), EVERYWHERE, indirect=["vocabulary"])
def test_lines_and_a_question_are_one_user_message(vocabulary, source, order):
    source = getattr(templates, source)
    dialect = Dialect(vocabulary, _template(vocabulary, source))
    head, tail = dialect.data_frame(_shape(order))
    held = replace(_shape(order + "u"), data=True)
    asked = [*_spans(dialect, order), *head, *_lines(vocabulary), *dialect.message(held, Role.USER, QUESTION)]
    asked += dialect.opener(_shape(order + "u"))
    whole = "\n".join((*LINES, QUESTION))
    assert _shown(vocabulary, asked) == _rendered(vocabulary, source, order, ("u", whole), opener=True)
    assert dialect.data_frame(held) == ((), tail)


@pytest.mark.parametrize(("vocabulary", "source"), EVERYWHERE, indirect=["vocabulary"])
def test_a_reply_to_data_comes_after_the_end_of_their_turn(vocabulary, source):
    source = getattr(templates, source)
    dialect = Dialect(vocabulary, _template(vocabulary, source))
    head, tail = dialect.data_frame(_shape("ua"))
    held = replace(_shape("uau"), data=True)
    opener = dialect.opener(held)
    assert opener == (*tail, *dialect.opener(_shape("uau")))
    shown = _shown(vocabulary, [*_spans(dialect, "ua"), *head, *_lines(vocabulary), *opener])
    # a template that trims would have left out the last line end; on the input it is
    whole = "\n".join((*LINES, "END"))
    assert shown == _rendered(vocabulary, source, "ua", ("u", whole), opener=True).replace("END", "")


@pytest.mark.parametrize(("vocabulary", "source"), EVERYWHERE, indirect=["vocabulary"])
def test_data_close_a_reply_that_was_cut(vocabulary, source):
    text = getattr(templates, source)
    dialect = Dialect(vocabulary, _template(vocabulary, text))
    reply = vocabulary.tokenize_after("\n", TEXTS["a"], special=False)
    if source == "MISTRAL_V1":
        reply = vocabulary.tokenize_after("]", " " + TEXTS["a"], special=False)
    cut = [*_spans(dialect, "u"), *dialect.opener(_shape("u")), *reply]
    head, _ = dialect.data_frame(replace(_shape("ua"), cut=True))
    end = END.get(source.split("_")[0], vocabulary.eos_text)
    assert vocabulary.control[end] in head
    shown = _shown(vocabulary, [*cut, *head, *_lines(vocabulary)])
    whole = "\n".join((*LINES, "END"))
    assert shown == _rendered(vocabulary, text, "ua", ("u", whole)).partition("END")[0]
    finished, _ = dialect.data_frame(_shape("ua", finished=True))
    assert _shown(vocabulary, [*cut, vocabulary.control[end], *finished, *_lines(vocabulary)]) == shown


@pytest.mark.parametrize("source", TEMPLATES)
def test_other_messages_come_after_the_end_of_a_data_turn(bpe, source):
    dialect = Dialect(bpe, _template(bpe, getattr(templates, source)))
    _, tail = dialect.data_frame(_shape(""))
    held = replace(_shape("u"), data=True)
    said = dialect.message(held, Role.ASSISTANT, "the model")
    assert said == (*tail, *dialect.message(_shape("u"), Role.ASSISTANT, "the model"))


def test_a_tool_result_comes_after_the_end_of_a_data_turn(bpe):
    dialect = Dialect(bpe, _template(bpe, tool_templates.HERMES))
    _, tail = dialect.data_frame(_shape("ua"))
    held = replace(_shape("uau"), data=True)
    assert dialect.tool_result(held, "f", "1") == (*tail, *dialect.tool_result(_shape("uau"), "f", "1"))


@pytest.mark.parametrize("source", ["GEMMA", "MISTRAL_V1"])
def test_data_find_a_place_where_the_template_wants_a_reply_first(spm, source):
    dialect = Dialect(spm, _template(spm, getattr(templates, source)))
    head, tail = dialect.data_frame(_shape("u"))
    assert head
    assert tail
    assert spm.bos not in head
    held = replace(_shape("uu"), data=True)
    assert QUESTION in _shown(spm, dialect.message(held, Role.USER, QUESTION))


def test_what_data_and_questions_spell_stays_text(vocabulary):
    dialect = Dialect(vocabulary, _template(vocabulary, templates.CHATML))
    texts = [*list(vocabulary.control)[:40], HERE, HERE + "<|im_end|>" + HERE]
    for text in texts:
        entry = _lines(vocabulary, [f"a{text}b"])
        assert vocabulary.control_ids.isdisjoint(entry)
        asked = dialect.message(replace(_shape("u"), data=True), Role.USER, f"a{text}b")
        plain = dialect.message(replace(_shape("u"), data=True), Role.USER, "ab")
        assert [t for t in asked if t in vocabulary.control_ids] == [t for t in plain if t in vocabulary.control_ids]
        assert f"a{text}b" in b"".join(map(vocabulary.piece, asked)).decode()


def test_white_space_before_a_question_stays(bpe):
    dialect = Dialect(bpe, _template(bpe, templates.GEMMA))
    asked = dialect.message(replace(_shape("u"), data=True), Role.USER, "  hello  ")
    assert _shown(bpe, asked) == "  hello<end_of_turn>\n"


@pytest.mark.parametrize("source", TEMPLATES)
def test_a_question_has_a_place_after_anything(spm, source):
    dialect = Dialect(spm, _template(spm, getattr(templates, source)))
    for order in ("", "s", "u", "uu", "a", "ua", "su", "sus"):
        shape = _shape(order)
        for before in (shape, replace(shape, empty=False), replace(shape, cut=shape.roles[-1:] == (Role.ASSISTANT,))):
            assert QUESTION in _shown(spm, dialect.turn(before, QUESTION))
