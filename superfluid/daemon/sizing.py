"""What `auto` means for memory: how long a session's window is, how much KV may lie in host memory."""

from __future__ import annotations

from superfluid.memory import memory
from superfluid.model.gguf import ModelFile

KV_SHARE = 8
"""The KV of all sequences takes at most one part in so many of the memory that is free at start."""

ELEMENT_BYTES = {"f16": 2.0, "q8_0": 34 / 32, "q4_0": 18 / 32}
"""Bytes of a KV element by type: quantised blocks of 32 carry a scale."""

CONTEXT_LEAST = 512
CONTEXT_STEP = 256
CONTEXT_UNKNOWN = 8192
"""Window of a model that does not say what it was trained on."""


def sequences(lanes: int) -> int:
    """Sequences beside the lanes', which keep the KV of sessions that do not run."""
    return max(2, lanes // 4)


def context(model: ModelFile, lanes: int, kv_type: str) -> int:
    """Tokens a sequence: what the model was trained on, less where the memory would not hold it."""
    trained = model.context_length or CONTEXT_UNKNOWN
    a_token = max(1, model.kv_bytes_per_token(ELEMENT_BYTES[kv_type])) * (lanes + sequences(lanes))
    fitting = memory().free // KV_SHARE // a_token
    return max(CONTEXT_LEAST, min(trained, fitting // CONTEXT_STEP * CONTEXT_STEP))


def host_bytes() -> int:
    """Bytes of KV in host memory: a part of what is free at start."""
    return memory().free // KV_SHARE
