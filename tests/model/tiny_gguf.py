"""Writes tiny GGUF files: a whole vocabulary of a few hundred tokens, with random weights where asked.

With weights (`layers` > 0) the file is a llama-architecture model that llama.cpp runs; what it says is noise, and the
same noise for the same arguments. Without, it can only be loaded for its vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import gguf
import numpy as np

CONTROLS = (
    "<|im_start|>",
    "<|im_end|>",
    "<|begin_of_text|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
    "<start_of_turn>",
    "<end_of_turn>",
)
"""control tokens of the well-known formats; every tiny vocabulary has them"""

_WORDS = ("user", "assistant", "system", "model", "hello", "there", "the", "you", "are", "INST", "think", "\n\n")
_NORMAL, _UNKNOWN, _CONTROL, _USER, _BYTE = (
    gguf.TokenType.NORMAL,
    gguf.TokenType.UNKNOWN,
    gguf.TokenType.CONTROL,
    gguf.TokenType.USER_DEFINED,
    gguf.TokenType.BYTE,
)


@dataclass(frozen=True, slots=True)
class _Tokens:
    texts: list[str]
    types: list[int]
    scores: list[float]
    merges: list[str]


def write(
    path: Path,
    *,
    kind: Literal["spm", "bpe"] = "bpe",
    template: str | None = None,
    bos: str = "<s>",
    eos: str = "</s>",
    adds_bos: bool = False,
    space_prefix: bool = False,
    extra_controls: Sequence[str] = (),
    layers: int = 0,
    embedding: int = 64,
    context: int = 2048,
    seed: int = 0,
    parts: int = 1,
    markers: Mapping[str, str] | None = None,
) -> Path:
    """Write a model to `path` and give that back. `bos` and `eos` are texts of control tokens.

    `parts` only claims that the file is the first of so many. `markers` names control tokens for fill-in-the-middle
    in the header, by GGUF's names such as `fim_pre`.
    "spm" merges by score as SentencePiece does, with bytes to fall back on; "bpe" merges by rank over bytes as GPT-2.
    Both know a few words and every byte. `space_prefix` ("spm" only): text at a start counts as after a space.
    """
    controls = ("<unk>", "<s>", "</s>", *CONTROLS, *extra_controls)
    tokens = _spm(controls) if kind == "spm" else _bpe(controls)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_context_length(context)
    writer.add_embedding_length(embedding)
    writer.add_block_count(max(1, layers))
    writer.add_feed_forward_length(2 * embedding)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(embedding // 4)
    writer.add_vocab_size(len(tokens.texts))
    writer.add_tokenizer_model("llama" if kind == "spm" else "gpt2")
    writer.add_tokenizer_pre("default" if kind == "spm" else "gpt-2")
    writer.add_token_list(tokens.texts)
    writer.add_token_types(tokens.types)
    writer.add_token_scores(tokens.scores)
    if kind == "bpe":
        writer.add_token_merges(tokens.merges)
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(tokens.texts.index(bos))
    writer.add_eos_token_id(tokens.texts.index(eos))
    writer.add_add_bos_token(adds_bos)
    writer.add_add_space_prefix(space_prefix)
    for name, text in (markers or {}).items():
        writer.add_uint32(f"tokenizer.ggml.{name}_token_id", tokens.texts.index(text))
    if parts > 1:
        writer.add_uint16("split.count", parts)
    if template is not None:
        writer.add_chat_template(template)
    if layers:
        _add_weights(writer, len(tokens.texts), layers, embedding, seed)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _spm(controls: Sequence[str]) -> _Tokens:
    texts = list(controls)
    types = [int(_UNKNOWN), *[int(_CONTROL)] * (len(controls) - 1)]
    scores = [0.0] * len(controls)
    texts += [f"<0x{byte:02X}>" for byte in range(256)]
    types += [int(_BYTE)] * 256
    scores += [0.0] * 256
    pieces = ["▁", *(chr(code) for code in range(33, 127))]
    # "</s" lets free merging arrive at "</s>", the trap that real vocabularies have too
    for word in (*_WORDS, *(f"▁{word}" for word in _WORDS if word.isalpha()), "</s", "<|im_end|"):
        for end in range(2, len(word) + 1):
            if word[:end] not in pieces:
                pieces.append(word[:end])
    texts += pieces
    types += [int(_NORMAL)] * len(pieces)
    scores += [-float(index + 1) for index in range(len(pieces))]
    return _Tokens(texts, types, scores, [])


def _bpe(controls: Sequence[str]) -> _Tokens:
    alphabet = _byte_alphabet()
    texts = [*controls, *alphabet]
    types = [*[int(_CONTROL)] * len(controls), *[int(_NORMAL)] * 256]
    merges: list[str] = []
    for word in (*_WORDS, *(f" {word}" for word in _WORDS if word.isalpha())):
        spelled = "".join(alphabet[byte] for byte in word.encode())
        for end in range(2, len(spelled) + 1):
            if spelled[:end] not in texts:
                texts.append(spelled[:end])
                types.append(int(_NORMAL))
                merges.append(f"{spelled[: end - 1]} {spelled[end - 1]}")
    return _Tokens(texts, types, [0.0] * len(texts), merges)


def _byte_alphabet() -> list[str]:
    """GPT-2's way to write each byte as a visible character."""
    visible = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(256, 512))
    return [chr(byte) if byte in visible else chr(next(others)) for byte in range(256)]


def _add_weights(writer: gguf.GGUFWriter, vocabulary: int, layers: int, embedding: int, seed: int) -> None:
    random = np.random.default_rng(seed)

    def add(name: str, *shape: int) -> None:
        writer.add_tensor(name, (random.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32))

    def add_norm(name: str) -> None:
        writer.add_tensor(name, np.ones(embedding, dtype=np.float32))

    add("token_embd.weight", vocabulary, embedding)
    for layer in range(layers):
        add_norm(f"blk.{layer}.attn_norm.weight")
        add(f"blk.{layer}.attn_q.weight", embedding, embedding)
        add(f"blk.{layer}.attn_k.weight", embedding // 2, embedding)
        add(f"blk.{layer}.attn_v.weight", embedding // 2, embedding)
        add(f"blk.{layer}.attn_output.weight", embedding, embedding)
        add_norm(f"blk.{layer}.ffn_norm.weight")
        add(f"blk.{layer}.ffn_gate.weight", 2 * embedding, embedding)
        add(f"blk.{layer}.ffn_up.weight", 2 * embedding, embedding)
        add(f"blk.{layer}.ffn_down.weight", embedding, 2 * embedding)
    add_norm("output_norm.weight")
    add("output.weight", vocabulary, embedding)
