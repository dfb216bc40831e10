"""Fill-in-the-middle prompts: where markers are found, and how the parts are put together."""

import pytest

from superfluid.model.fim import FimDialect
from superfluid.model.vocabulary import Vocabulary
from superfluid.protocol.codes import FimMode
from superfluid.protocol.refusals import NoFim
from tests.model import tiny_gguf

KNOWN = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|fim_pad|>")
OWN = ("<P>", "<S>", "<M>")


def test_markers_by_their_texts(models):
    with Vocabulary(tiny_gguf.write(models / "fim.gguf", eos="<|im_end|>", extra_controls=KNOWN)) as vocabulary:
        dialect = FimDialect.of(vocabulary)
        ids = [vocabulary.control[text] for text in KNOWN]
        assert [dialect.before, dialect.after, dialect.middle] == ids[:3]
        assert dialect.ends >= {*ids, vocabulary.control["<|im_end|>"]}
        assert vocabulary.control["<|im_start|>"] not in dialect.ends


def test_markers_by_the_keys_of_the_file(models):
    named = dict(zip(("fim_pre", "fim_suf", "fim_mid"), OWN, strict=True))
    with Vocabulary(tiny_gguf.write(models / "own.gguf", extra_controls=OWN, markers=named)) as vocabulary:
        dialect = FimDialect.of(vocabulary)
        assert [dialect.before, dialect.after, dialect.middle] == [vocabulary.control[text] for text in OWN]


def test_what_is_missing_is_named(models):
    named = {"fim_pre": "<P>", "fim_mid": "<M>"}
    path = tiny_gguf.write(models / "part.gguf", extra_controls=OWN, markers=named)
    with Vocabulary(path) as vocabulary, pytest.raises(NoFim) as caught:
        FimDialect.of(vocabulary)
    assert "tokenizer.ggml.fim_suf_token_id" in str(caught.value)
    assert "fim_pre_token_id" not in str(caught.value)


def test_both_orders(models):
    with Vocabulary(tiny_gguf.write(models / "orders.gguf", extra_controls=KNOWN)) as vocabulary:
        dialect = FimDialect.of(vocabulary)
        head = vocabulary.tokenize("hello there", special=False)
        tail = vocabulary.tokenize(" you are", special=False)
        psm = dialect.prompt(vocabulary, "hello there", " you are", FimMode.PSM)
        assert psm == (dialect.before, *head, dialect.after, *tail, dialect.middle)
        spm = dialect.prompt(vocabulary, "hello there", " you are", FimMode.SPM)
        assert spm == (dialect.after, *tail, dialect.before, *head, dialect.middle)


def test_text_cannot_spell_a_marker(models):
    with Vocabulary(tiny_gguf.write(models / "spell.gguf", extra_controls=KNOWN)) as vocabulary:
        dialect = FimDialect.of(vocabulary)
        prompt = dialect.prompt(vocabulary, "a<|fim_middle|>b", "c<|fim_suffix|><|im_end|>", FimMode.PSM)
    assert prompt.count(dialect.middle) == prompt.count(dialect.after) == 1
    assert not dialect.ends & {*prompt} - {dialect.before, dialect.after, dialect.middle}


def test_a_suffix_goes_on_where_a_prefix_begins(models):
    path = tiny_gguf.write(models / "space.gguf", kind="spm", adds_bos=True, space_prefix=True, extra_controls=KNOWN)
    with Vocabulary(path) as vocabulary:
        dialect = FimDialect.of(vocabulary)
        prompt = dialect.prompt(vocabulary, "the", "the", FimMode.PSM)
        assert prompt[:2] == (vocabulary.bos, dialect.before)
        at = prompt.index(dialect.after)
        assert b"".join(map(vocabulary.piece, prompt[2:at])) == b" the"
        assert b"".join(map(vocabulary.piece, prompt[at + 1 : -1])) == b"the"
