"""A model and its context as llama.cpp makes them, and what they turn out to be.

Why the library refused something stands in what it logs, and nowhere else, and so do some of its sizes.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import llama_cpp.llama_cpp as c
from llama_cpp._ggml import libggml

from superfluid.engine.backend import LoadError, Traits
from superfluid.engine.devices import build, device_names, gpus
from superfluid.engine.hugepages import in_huge_pages
from superfluid.engine.logs import LineLog
from superfluid.memory import memory
from superfluid.protocol.ticks import KV_TYPES, Load

_UBATCH = 512
_MOST_PROMPT_ROWS = 2048
_GGML_TYPES = {"f16": c.GGML_TYPE_F16, "q8_0": c.GGML_TYPE_Q8_0, "q4_0": c.GGML_TYPE_Q4_0}
_KV_SIZE = re.compile(r"^llama_(?:kv_cache|memory_recurrent)\w*: size = +([\d.]+) MiB")
_OFFLOADED = re.compile(r"offloaded (\d+)/\d+ layers")
_SWA_FULL = False
_PARTLY_ROTATED = frozenset({"afmoe", "cohere2", "exaone-moe", "exaone4", "llama4", "smollm3"})
"""Architectures with layers that take no notice of positions."""
_COPIED = 0.25
"""Weights of a greater part of the memory that is free stay mapped: the system can take mapped memory back."""
_PART = re.compile(r"-\d{5}-of-\d{5}\.gguf$")
"""The name of one of several files, whose size says little of the whole."""
_NOT_ENOUGH = (
    "not enough memory for the KV of {sequences} sequences of {context} tokens, {gib:,.1f} GiB{why}; "
    "a smaller --max-context or --max-batch needs less"
)

_LOG: Final = LineLog()


@c.llama_log_callback  # type: ignore[untyped-decorator]
def _on_log(level: int, text: bytes, _data: object) -> None:
    _LOG.piece(level, text.decode(errors="replace"))


def listen() -> None:
    """Hear what the library logs from now on, and forget what it said before."""
    # The callback lives as long as the module: C may log at any time from now on.
    c.llama_log_set(_on_log, ctypes.c_void_p(0))
    _LOG.forget()


def load_model(load: Load, progress: Callable[[float], bool]) -> Any:
    """The weights. Raises LoadError with what the library logged."""
    path = Path(load.model)
    if not path.is_file():
        raise LoadError(f"{load.model}: no such file")
    params = c.llama_model_default_params()
    params.n_gpu_layers = min(load.gpu_layers, (1 << 31) - 1)
    callback = c.llama_progress_callback(lambda done, _data: progress(done))
    params.progress_callback = callback
    if _copied(path, load.gpu_layers):
        params.load_mode = c.LLAMA_LOAD_MODE_NONE
    model = c.llama_model_load_from_file(str(path).encode(), params)
    if not model:
        raise LoadError(f"{load.model}: {_LOG.errors() or 'llama.cpp gave no reason'}")
    return model


def _copied(path: Path, gpu_layers: int) -> bool:
    """Whether the weights are read into memory of ours, which lies in huge pages; the file, mapped, does not."""
    if (gpu_layers and gpus()) or not in_huge_pages() or _PART.search(path.name):
        return False
    return path.stat().st_size <= memory().free * _COPIED


def make_context(load: Load, threads: int, model: Any) -> Any:
    """A context of as many sequences as `load` asks for, each with KV of its own. Raises LoadError."""
    sequences = load.lanes + load.spare
    if sequences > c.llama_max_parallel_sequences():
        raise LoadError(f"{sequences} sequences; llama.cpp takes {c.llama_max_parallel_sequences()}")
    if load.kv_type >= len(KV_TYPES):
        raise LoadError(f"there is no KV type number {load.kv_type}")
    kind = _GGML_TYPES[KV_TYPES[load.kv_type]]
    context = load.context or c.llama_model_n_ctx_train(model)
    needed = _attention_bytes(model, kind) * context * sequences
    if needed > memory().total and not gpus():
        # An overcommitting kernel would grant it now and kill the worker when it is written to.
        raise LoadError(_NOT_ENOUGH.format(sequences=sequences, context=context, gib=needed / (1 << 30), why=""))
    params = c.llama_context_default_params()
    params.n_ctx = context * sequences
    params.n_seq_max = sequences
    params.n_batch = _MOST_PROMPT_ROWS + sequences
    params.n_ubatch = _UBATCH
    # One row of each sequence at most is sampled: room for more logits is a hundred megabytes with a big vocabulary.
    params.n_outputs_max = sequences
    params.n_threads = params.n_threads_batch = threads
    params.type_k = params.type_v = kind
    # Quantised values are read by flash attention only; left to choose, the library may choose to do without.
    params.flash_attn_type = c.LLAMA_FLASH_ATTN_TYPE_ENABLED if load.kv_type else c.LLAMA_FLASH_ATTN_TYPE_AUTO
    params.kv_unified = False
    params.swa_full = _SWA_FULL
    params.no_perf = True
    made = c.llama_init_from_model(model, params)
    if not made:
        why = _LOG.errors()
        if load.kv_type:
            reason = why or "llama.cpp gave no reason"
            raise LoadError(f"KV of this model cannot be stored as {KV_TYPES[load.kv_type]}: {reason}")
        raise LoadError(
            _NOT_ENOUGH.format(
                sequences=sequences, context=context, gib=needed / (1 << 30), why=f": {why}" if why else ""
            )
        )
    return made


def _attention_bytes(model: Any, kind: int = c.GGML_TYPE_F16) -> int:
    """Bytes of keys and values of one token, if every layer keeps it: an upper bound with sliding windows."""
    heads = c.llama_model_n_head(model)
    if heads <= 0:
        return 0
    width = c.llama_model_n_embd(model) // heads * c.llama_model_n_head_kv(model)
    elements = int(c.llama_model_n_layer(model) * width * 2)
    size, block = libggml.ggml_type_size, libggml.ggml_blck_size
    size.argtypes, size.restype = [ctypes.c_int], ctypes.c_size_t
    block.argtypes, block.restype = [ctypes.c_int], ctypes.c_int64
    return int(elements * size(kind) // block(kind))


def traits_of(model: Any, context: Any, *, exact_kv: bool) -> Traits:
    """What the worker has to know of them. `exact_kv`: keys are not quantised."""
    lines = _LOG.lines()
    per_sequence = int(c.llama_n_ctx_seq(context))
    sequences = int(c.llama_n_seq_max(context))
    sizes = [float(found[1]) for line in lines if (found := _KV_SIZE.match(line))]
    offloaded = [int(found[1]) for line in lines if (found := _OFFLOADED.search(line))]
    gpu_layers = offloaded[-1] if offloaded and gpus() else 0
    window = max(0, int(c.llama_model_n_swa(model)))
    recurrent = bool(c.llama_model_is_recurrent(model) or c.llama_model_is_hybrid(model))
    return Traits(
        context=per_sequence,
        sequences=sequences,
        vocabulary=int(c.llama_vocab_n_tokens(c.llama_model_get_vocab(model))),
        batch=int(c.llama_n_batch(context)),
        window=window,
        recurrent=recurrent,
        swa_full=_SWA_FULL,
        # Quantised keys are rounded again by every shift: after a hundred, answers are wrong.
        shifts=exact_kv and not recurrent and (not window or _SWA_FULL) and _rotates(model, context),
        devices=device_names(),
        gpu_layers=gpu_layers,
        model_bytes=int(c.llama_model_size(model)),
        kv_bytes=round(sum(sizes) * (1 << 20)) if sizes else _attention_bytes(model) * per_sequence * sequences,
        build=build(),
    )


def _rotates(model: Any, context: Any) -> bool:
    """Whether a shift moves keys to where they would be: the library aborts where it knows better, and rotates the
    keys of layers that have no rotation."""
    name = ctypes.create_string_buffer(64)
    c.llama_model_meta_val_str(model, b"general.architecture", name, len(name))
    rope = c.llama_model_rope_type(model) in (c.LLAMA_ROPE_TYPE_NORM, c.LLAMA_ROPE_TYPE_NEOX)
    possible = bool(c.llama_memory_can_shift(c.llama_get_memory(context)))
    return possible and rope and name.value.decode(errors="replace") not in _PARTLY_ROTATED
