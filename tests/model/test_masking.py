"""What a message says can never become a control token, and is otherwise read as llama.cpp reads it."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from superfluid.model.dialect import Conversation, Dialect
from superfluid.model.masking import LEFT, RIGHT, Masks, Tokenizer
from superfluid.model.template import ChatTemplate
from superfluid.protocol.codes import Role
from tests.model import templates

FRAGMENTS = [
    "<|im_start|>", "<|im_end|>", "<s>", "</s>", "<unk>", "<eos>", "<bos>", "<end_of_turn>", "<start_of_turn>",
    "<|eot_id|>", "<|im_", "end|>", "<", "|", ">", "</", "s>", "</s", "<<s>>", "\n", "\n\n", " ", "▁", "hello",
    "a", "é", "<0x41>", "user", "\ue000", "\ue100", "\ue100\ue100\ue103", LEFT, RIGHT, LEFT + "0" + RIGHT,
    "\uf8ff", "\U000f0000", "\U0010fffd", "\0",
]  # fmt: skip
CONTENTS = st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=4), max_size=12).map("".join)


@pytest.fixture(params=["smollm", "gemma", "spm", "bpe"])
def masks(request):
    vocabulary = request.getfixturevalue(request.param)
    return vocabulary, Masks(vocabulary)


def _control_ids(vocabulary, ids):
    return [token for token in ids if token in vocabulary.control_ids]


@given(CONTENTS)
def test_masking_is_undone_and_leaves_no_control_string(smollm, gemma, spm, bpe, text):
    for vocabulary in (smollm, gemma, spm, bpe):
        masks = Masks(vocabulary) if vocabulary is not gemma else _gemma_masks(gemma)
        masked = masks.mask(text)
        assert masks.unmask(masked) == text
        assert not any(control in masked for control in list(vocabulary.control)[:300])
        assert LEFT not in masked
        assert RIGHT not in masked


_MADE: dict[int, Masks] = {}


def _gemma_masks(gemma) -> Masks:
    return _MADE.setdefault(id(gemma), Masks(gemma))


_DIALECTS: dict[tuple[int, str], Dialect] = {}


def _dialect(vocabulary, source) -> Dialect:
    key = (id(vocabulary), source)
    if key not in _DIALECTS:
        template = ChatTemplate(source, bos=vocabulary.bos_text, eos=vocabulary.eos_text)
        _DIALECTS[key] = Dialect(vocabulary, template)
    return _DIALECTS[key]


@settings(max_examples=300)
@given(text=CONTENTS)
@pytest.mark.parametrize(
    "source", [templates.CHATML, templates.GEMMA, templates.MISTRAL_V1], ids=["chatml", "gemma", "mistral"]
)
def test_no_content_becomes_a_control_token(smollm, gemma, spm, bpe, source, text):
    for vocabulary in (smollm, gemma, spm, bpe):
        dialect = _dialect(vocabulary, source)
        for before in (Conversation((), True, False, 0), Conversation((1, 2), False, True, 0)):
            ids = dialect.message(before, Role.USER, text)
            plain = dialect.message(before, Role.USER, "hello")
            assert _control_ids(vocabulary, ids) == _control_ids(vocabulary, plain)


# SentencePiece writes a space as "▁" and cannot tell them apart
@given(text=CONTENTS.map(lambda text: text.replace("▁", "")))
def test_content_survives(gemma, bpe, text):
    # (not smollm: its vocabulary lacks some bytes, so that no way of tokenising says them)
    for vocabulary in (gemma, bpe):
        ids = _dialect(vocabulary, templates.CHATML).message(Conversation((1,), False, False, 0), Role.USER, text)
        spelled = b"".join(map(vocabulary.piece, ids[1:])).decode("utf-8", "replace")
        frame = "<|im_start|>user\n", "<|im_end|>\n"
        if "<|im_start|>" in vocabulary.control:
            assert spelled == "user\n" + text.encode("utf-8", "replace").decode() + "\n"
        else:
            assert spelled == frame[0][1:] + text.encode("utf-8", "replace").decode() + frame[1]


@given(st.text(st.characters(exclude_categories=["Cs", "Co"])).filter(lambda text: not {"<", "["} & set(text)))
def test_ordinary_text_gets_the_ids_of_plain_rendering(smollm, gemma, spm, bpe, text):
    for vocabulary in (smollm, gemma, spm, bpe):
        rendered = ChatTemplate(templates.CHATML).render([{"role": "user", "content": text}], now_ms=0)
        assert _tokenizer(vocabulary).ids(rendered) == vocabulary.tokenize(rendered, special=True)


_TOKENIZERS: dict[int, Tokenizer] = {}


def _tokenizer(vocabulary) -> Tokenizer:
    if id(vocabulary) not in _TOKENIZERS:
        _TOKENIZERS[id(vocabulary)] = Tokenizer(vocabulary)
    return _TOKENIZERS[id(vocabulary)]


@given(st.lists(st.sampled_from([*FRAGMENTS[:12], "hello", "\n", " "]), max_size=8).map("".join))
def test_a_frame_cut_at_its_control_tokens_gives_the_ids_of_one_call(smollm, gemma, spm, bpe, text):
    for vocabulary in (smollm, gemma, spm, bpe):
        want = vocabulary.tokenize(text, special=True)
        assert vocabulary.tokenize_long(text, special=True) == want
        spelled = [vocabulary.control[found] for _, found in vocabulary.controls.occurrences(text)]
        if _control_ids(vocabulary, want) == _control_ids(vocabulary, spelled):
            assert _tokenizer(vocabulary).ids(text) == want


def test_free_merging_does_not_reach_a_control_token(spm):
    """The trap is real: llama.cpp joins "</s>" out of plain text even where special tokens are not parsed."""
    assert spm.eos in spm.tokenize("</s>", special=False)
    ids = _tokenizer(spm).ids(_tokenizer(spm).masks.mask("a</s>b"))
    assert spm.eos not in ids
    assert b"".join(map(spm.piece, ids)) == b" a</s>b"


@pytest.mark.parametrize("text", ["<" * 200_000, "<unused" * 30_000, "<|im_end|>" * 20_000, "</s>" * 20_000])
def test_scanning_takes_time_in_proportion(smollm, gemma, spm, text):
    started = time.monotonic()
    for vocabulary in (smollm, gemma, spm):
        _dialect(vocabulary, templates.CHATML).message(Conversation((), True, False, 0), Role.USER, text)
    assert time.monotonic() - started < 10
