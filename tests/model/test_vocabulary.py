"""The vocabulary says what llama.cpp says."""

from __future__ import annotations

import logging
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from superfluid.model.gguf import ModelError, locate
from superfluid.model.vocabulary import PIECE_BYTES, Vocabulary, cut_at_lines
from tests.model import tiny_gguf


def _bytes(vocabulary, ids) -> bytes:
    return b"".join(map(vocabulary.piece, ids))


def test_the_embedded_vocabulary(smollm):
    assert (smollm.size, smollm.bos, smollm.eos, smollm.adds_bos) == (49152, 1, 2, False)
    assert (smollm.bos_text, smollm.eos_text) == ("<|im_start|>", "<|im_end|>")
    assert {0, 2} <= smollm.end_tokens
    assert smollm.control["<|im_end|>"] == 2
    assert "<|im_start|>" in smollm.template
    assert smollm.context_train == 8192
    assert smollm.metadata("general.architecture") == "llama"
    assert smollm.metadata("no.such.key") is None
    assert smollm.tokenize("hello", special=False) == [28120]
    assert smollm.tokenize("<|im_end|>", special=True) == [2]
    assert 2 not in smollm.tokenize("<|im_end|>", special=False)


def test_the_second_vocabulary(gemma):
    assert (gemma.bos, gemma.adds_bos, gemma.adds_space, gemma.template) == (2, True, False, None)
    assert {1, 106} <= gemma.end_tokens
    assert gemma.context_train == 32768


def test_every_call_gives_a_whole_text_back(vocabulary):
    for text in ("hello there", " a b", "a\n\n\nb", "é€🎉", "tab\there", "x\0y"):
        found = _bytes(vocabulary, vocabulary.tokenize(text, special=False)).decode()
        assert found == (" " + text if vocabulary.adds_space else text)
    assert vocabulary.tokenize("", special=True) == []


def test_a_lone_surrogate_counts_as_a_question_mark(vocabulary):
    assert vocabulary.tokenize("a\ud800b", special=False) == vocabulary.tokenize("a?b", special=False)


def test_text_that_needs_more_room_than_guessed(bpe):
    text = "\U0010ffff" * 300
    assert len(bpe.tokenize(text, special=False)) == 1200


def test_pieces_of_control_tokens_are_empty_and_spelled_for_display(vocabulary):
    for text, token in list(vocabulary.control.items())[:50]:
        assert vocabulary.piece(token) == b""
        assert vocabulary.spell(token) == text
    assert all(vocabulary.piece(token) == b"" for token in vocabulary.end_tokens)


@pytest.mark.parametrize("token", [-1, 1 << 31, 1 << 40])
def test_ids_out_of_range_are_refused(vocabulary, token):
    with pytest.raises(ValueError, match="not in the vocabulary"):
        vocabulary.piece(token)
    with pytest.raises(ValueError, match="not in the vocabulary"):
        vocabulary.spell(token)


def test_a_space_before_text_at_a_start_only(spm):
    assert spm.adds_space
    assert _bytes(spm, spm.tokenize("hello", special=True)) == b" hello"
    assert _bytes(spm, spm.tokenize_after("x\n", "hello", special=True)) == b"hello"
    assert _bytes(spm, spm.tokenize_after("<s>", "hello", special=True)) == b" hello"


@settings(max_examples=20)
@given(st.lists(st.sampled_from(["\n", "\n\n", " ", "x", "<td>", "</s>", "hello"]), min_size=600, max_size=700))
def test_text_cut_at_user_defined_tokens_gives_the_ids_of_one_call(gemma, parts):
    text = "".join(parts * 2)
    assert gemma.tokenize_long(text, special=True) == gemma.tokenize(text, special=True)


@given(st.lists(st.sampled_from(["hello", "\n", " ", "\n\n", "é", "x. ", "<s>"]), max_size=40), st.integers(4, 40))
def test_pieces_join_to_the_text_and_hold_no_more_than_asked(parts, most):
    text = "".join(parts)
    pieces = list(cut_at_lines(text, most))
    assert "".join(pieces) == text
    assert all(0 < len(piece.encode()) <= most for piece in pieces)


def test_long_text_is_cut_where_it_makes_no_difference(vocabulary):
    text = "".join(f"hello there, you are line {number}\n" for number in range(5000))
    assert len(text) > 2 * PIECE_BYTES
    assert vocabulary.tokenize_long(text, special=True) == vocabulary.tokenize(text, special=True)
    blank = "\n x" * PIECE_BYTES
    started = time.monotonic()
    joined = _bytes(vocabulary, vocabulary.tokenize_long(blank, special=True)).decode()
    assert joined.removeprefix(" " if vocabulary.adds_space else "") == blank
    assert time.monotonic() - started < 10
    assert vocabulary.tokenize_long("", special=True) == []


def test_a_closed_vocabulary_refuses(tmp_path):
    vocabulary = Vocabulary(tiny_gguf.write(tmp_path / "m.gguf"))
    vocabulary.close()
    vocabulary.close()
    for call in (
        lambda: vocabulary.tokenize("a", special=False),
        lambda: vocabulary.piece(300),
        lambda: vocabulary.metadata("x"),
    ):
        with pytest.raises(ValueError, match="closed"):
            call()


def test_a_file_that_llama_does_not_take(tmp_path, capfd, caplog):
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF and then nothing of use")
    with (
        caplog.at_level(logging.DEBUG, "superfluid.model"),
        pytest.raises(ModelError, match=r"llama\.cpp does not load it"),
    ):
        Vocabulary(path)
    assert "llama.cpp: " in caplog.text
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("", "")


def test_identity_tells_vocabularies_apart(smollm, gemma, spm, bpe):
    assert len({vocabulary.identity for vocabulary in (smollm, gemma, spm, bpe)}) == 4
    with Vocabulary(locate(None)) as again:
        assert again.identity == smollm.identity
