"""The models that tests write run in llama.cpp."""

from __future__ import annotations

import ctypes
import math

import pytest
from llama_cpp import llama_cpp as lib

from superfluid.model.gguf import inspect
from tests.model import tiny_gguf


@pytest.mark.parametrize("kind", ["spm", "bpe"])
def test_a_tiny_model_decodes(models, kind):
    path = tiny_gguf.write(models / f"runs-{kind}.gguf", kind=kind, layers=2)
    assert inspect(path).block_count == 2
    lib.llama_backend_init()
    model = lib.llama_model_load_from_file(str(path).encode(), lib.llama_model_default_params())
    assert model
    params = lib.llama_context_default_params()
    params.n_ctx, params.n_threads, params.n_threads_batch = 256, 1, 1
    context = lib.llama_init_from_model(model, params)
    assert context
    tokens = (lib.llama_token * 3)(1, 20, 30)
    assert lib.llama_decode(context, lib.llama_batch_get_one(tokens, 3)) == 0
    logits = lib.llama_get_logits_ith(context, -1)
    size = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(model))
    values = ctypes.cast(logits, ctypes.POINTER(ctypes.c_float * size)).contents
    assert all(map(math.isfinite, values))
    assert len(set(values)) > size // 2
    lib.llama_free(context)
    lib.llama_model_free(model)
