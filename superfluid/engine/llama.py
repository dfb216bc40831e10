"""llama.cpp behind the `Backend` protocol: with `devices`, all of the worker that knows the C library.

The raw functions are used throughout, since they alone tell why something failed. Everything that C owns is freed
through one ExitStack, in the reverse order of its making.
"""

from __future__ import annotations

import ctypes
import math
import re
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import llama_cpp.llama_cpp as c
import numpy as np
import psutil
from llama_cpp._ggml import libggml

from superfluid.engine.backend import Decoded, LoadError, Sampler, State, Stretch, Traits
from superfluid.engine.breaker import Breaker
from superfluid.engine.devices import build, device_names, gpus
from superfluid.engine.logs import LineLog
from superfluid.engine.samplers import Logits, make_sampler
from superfluid.engine.sampling import Recipe
from superfluid.protocol.ticks import KV_TYPES, Load

_UBATCH = 512
_MOST_PROMPT_ROWS = 2048
_RESULTS = {0: Decoded.DONE, 1: Decoded.NO_ROOM, 2: Decoded.STOPPED}
_GGML_TYPES = {"f16": c.GGML_TYPE_F16, "q8_0": c.GGML_TYPE_Q8_0, "q4_0": c.GGML_TYPE_Q4_0}
_KV_SIZE = re.compile(r"^llama_(?:kv_cache|memory_recurrent)\w*: size = +([\d.]+) MiB")
_SWA_FULL = False
_PARTLY_ROTATED = frozenset({"afmoe", "cohere2", "exaone-moe", "exaone4", "llama4", "smollm3"})
"""Architectures with layers that take no notice of positions."""
_PARTIAL = c.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY
_OFFLOADED = re.compile(r"offloaded (\d+)/\d+ layers")
_NOT_ENOUGH = "not enough memory for the KV of {sequences} sequences of {context} tokens, {bytes} bytes{why}"

_LOG: Final = LineLog()


@c.llama_log_callback  # type: ignore[untyped-decorator]
def _on_log(level: int, text: bytes, _data: object) -> None:
    _LOG.piece(level, text.decode(errors="replace"))


def open_llama(load: Load, threads: int, progress: Callable[[float], bool]) -> LlamaBackend:
    """Load a model and make its context. Raises LoadError with the reason."""
    # The callback lives as long as the module: C may log at any time from now on.
    c.llama_log_set(_on_log, ctypes.c_void_p(0))
    _LOG.forget()
    with ExitStack() as stack:
        c.llama_backend_init()
        stack.callback(c.llama_backend_free)
        model = _load_model(load, progress)
        stack.callback(c.llama_model_free, model)
        context = _make_context(load, threads, model)
        stack.callback(c.llama_free, context)
        if not c.llama_get_memory(context) or c.llama_model_has_encoder(model):
            raise LoadError(f"{load.model}: keeps no KV, so it is no model for conversations")
        return LlamaBackend(model, context, stack.pop_all(), exact_kv=not load.kv_type)


def _load_model(load: Load, progress: Callable[[float], bool]) -> Any:
    path = Path(load.model)
    if not path.is_file():
        raise LoadError(f"{load.model}: no such file")
    params = c.llama_model_default_params()
    params.n_gpu_layers = min(load.gpu_layers, (1 << 31) - 1)
    callback = c.llama_progress_callback(lambda done, _data: progress(done))
    params.progress_callback = callback
    model = c.llama_model_load_from_file(str(path).encode(), params)
    if not model:
        raise LoadError(f"{load.model}: {_LOG.errors() or 'llama.cpp gave no reason'}")
    return model


def _make_context(load: Load, threads: int, model: Any) -> Any:
    sequences = load.lanes + load.spare
    if sequences > c.llama_max_parallel_sequences():
        raise LoadError(f"{sequences} sequences; llama.cpp takes {c.llama_max_parallel_sequences()}")
    if load.kv_type >= len(KV_TYPES):
        raise LoadError(f"there is no KV type number {load.kv_type}")
    kind = _GGML_TYPES[KV_TYPES[load.kv_type]]
    context = load.context or c.llama_model_n_ctx_train(model)
    needed = _attention_bytes(model, kind) * context * sequences
    if needed > psutil.virtual_memory().total and not gpus():
        # An overcommitting kernel would grant it now and kill the worker when it is written to.
        raise LoadError(_NOT_ENOUGH.format(sequences=sequences, context=context, bytes=needed, why=""))
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
            _NOT_ENOUGH.format(sequences=sequences, context=context, bytes=needed, why=f": {why}" if why else "")
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


class LlamaBackend:
    """A model and its context. Make it with `open_llama`."""

    def __init__(self, model: Any, context: Any, stack: ExitStack, *, exact_kv: bool) -> None:
        self._stack = stack
        self._context = context
        self._vocabulary = c.llama_model_get_vocab(model)
        self._memory = c.llama_get_memory(context)
        self._traits = _traits(model, context, self._vocabulary, exact_kv)
        self._batch = _Batch(self._traits.batch, self._traits.sequences)
        self._row = ctypes.c_float * self._traits.vocabulary

    @property
    def traits(self) -> Traits:
        return self._traits

    def decode(self, batch: Sequence[Stretch], stop: Callable[[], bool] | None = None) -> Decoded:
        filled = self._batch.fill(batch)
        if stop is None:
            result = c.llama_decode(self._context, filled)
        else:
            with Breaker(self._context, stop):
                result = c.llama_decode(self._context, filled)
        return _RESULTS.get(result, Decoded.FAILED)

    def sampler(self, stages: Recipe, said: Sequence[int]) -> Sampler:
        return make_sampler(self, stages, said)

    @property
    def vocabulary(self) -> int:
        return self._traits.vocabulary

    @cached_property
    def ends(self) -> tuple[int, ...]:
        """Every token that ends a turn."""
        return tuple(token for token in range(self._traits.vocabulary) if self.is_end(token))

    def sample(self, chain: Any, stretch: int) -> int:
        """Let a chain choose, and accept, the token after a stretch of the last batch."""
        return int(c.llama_sampler_sample(chain, self._context, self._batch.last_rows[stretch]))

    def logits(self, stretch: int) -> Logits:
        """Those after a stretch of the last batch, one a token of the vocabulary: the library's own memory, which
        holds them until the next decode."""
        first = c.llama_get_logits_ith(self._context, self._batch.last_rows[stretch]).contents
        return np.frombuffer(memoryview(self._row.from_address(ctypes.addressof(first))), np.float32)

    def gap(self, stretch: int) -> float:
        second, first = np.partition(self.logits(stretch), (-2, -1))[-2:].tolist()
        gap = first - second
        return gap if math.isfinite(gap) else 0.0

    def copy(self, source: int, target: int) -> None:
        # The whole stream: with a range across streams, llama.cpp aborts the process.
        c.llama_memory_seq_rm(self._memory, target, -1, -1)
        c.llama_memory_seq_cp(self._memory, source, target, -1, -1)

    def cut(self, sequence: int, length: int) -> bool:
        return bool(c.llama_memory_seq_rm(self._memory, sequence, length, -1))

    def shift(self, sequence: int, start: int, count: int) -> bool:
        if not c.llama_memory_seq_rm(self._memory, sequence, start, start + count):
            return False
        c.llama_memory_seq_add(self._memory, sequence, start + count, -1, -count)
        return True

    def clear(self, sequence: int) -> None:
        c.llama_memory_seq_rm(self._memory, sequence, -1, -1)

    def state_size(self, sequence: int) -> int:
        return int(c.llama_state_seq_get_size(self._context, sequence))

    def save(self, sequence: int) -> State | None:
        state = bytearray(self.state_size(sequence))
        if not state:
            return None
        view = (ctypes.c_uint8 * len(state)).from_buffer(state)
        written = c.llama_state_seq_get_data(self._context, view, len(state), sequence)
        return state if written == len(state) else None

    def restore(self, sequence: int, state: State) -> bool:
        if not state:
            return False
        kind = ctypes.c_uint8 * len(state)
        view = kind.from_buffer(state) if isinstance(state, bytearray) else kind.from_buffer_copy(state)
        return bool(c.llama_state_seq_set_data(self._context, view, len(state), sequence) == len(state))

    def partial_size(self, sequence: int) -> int:
        return int(c.llama_state_seq_get_size_ext(self._context, sequence, _PARTIAL))

    def save_partial(self, sequence: int) -> State | None:
        if not (self._traits.window or self._traits.recurrent):
            return None
        state = bytearray(self.partial_size(sequence))
        if not state:
            return None
        view = (ctypes.c_uint8 * len(state)).from_buffer(state)
        written = c.llama_state_seq_get_data_ext(self._context, view, len(state), sequence, _PARTIAL)
        return state if written == len(state) else None

    def rewind(self, sequence: int, length: int, partial: State) -> bool:
        kind = ctypes.c_uint8 * len(partial)
        view = kind.from_buffer(partial) if isinstance(partial, bytearray) else kind.from_buffer_copy(partial)
        read = c.llama_state_seq_set_data_ext(self._context, view, len(partial), sequence, _PARTIAL)
        # In this order: recurrent layers refuse to be cut, until they are where the cut would bring them.
        return bool(read == len(partial)) and self.cut(sequence, length)

    def first(self, sequence: int) -> int:
        return int(c.llama_memory_seq_pos_min(self._memory, sequence))

    def last(self, sequence: int) -> int:
        return int(c.llama_memory_seq_pos_max(self._memory, sequence))

    def is_end(self, token: int) -> bool:
        return bool(c.llama_vocab_is_eog(self._vocabulary, token))

    def set_threads(self, count: int) -> None:
        c.llama_set_n_threads(self._context, count, count)

    def close(self) -> None:
        self._stack.close()


class _Batch:
    """A llama_batch over arrays that are filled anew for each decode."""

    def __init__(self, rows: int, sequences: int) -> None:
        self._tokens = (c.llama_token * rows)()
        self._positions = (c.llama_pos * rows)()
        self._counts = (ctypes.c_int32 * rows)(*([1] * rows))
        self._numbers = [(c.llama_seq_id * 1)(number) for number in range(sequences)]
        pointer = ctypes.POINTER(c.llama_seq_id)
        self._pointers = [ctypes.cast(number, pointer) for number in self._numbers]
        self._sequences = (pointer * rows)()
        self._logits = (ctypes.c_int8 * rows)()
        self.last_rows: list[int] = []
        self._batch = c.llama_batch()
        self._batch.token = ctypes.cast(self._tokens, ctypes.POINTER(c.llama_token))
        self._batch.pos = ctypes.cast(self._positions, ctypes.POINTER(c.llama_pos))
        self._batch.n_seq_id = ctypes.cast(self._counts, ctypes.POINTER(ctypes.c_int32))
        self._batch.seq_id = ctypes.cast(self._sequences, ctypes.POINTER(pointer))
        self._batch.logits = ctypes.cast(self._logits, ctypes.POINTER(ctypes.c_int8))

    def fill(self, stretches: Sequence[Stretch]) -> Any:
        for row in self.last_rows:
            self._logits[row] = 0
        self.last_rows = []
        end = 0
        for stretch in stretches:
            begin, end = end, end + len(stretch.tokens)
            self._tokens[begin:end] = stretch.tokens.tolist()
            self._positions[begin:end] = list(range(stretch.start, stretch.start + end - begin))
            for row in range(begin, end):
                self._sequences[row] = self._pointers[stretch.sequence]
            self._logits[end - 1] = 1 if stretch.draws else 0
            self.last_rows.append(end - 1)
        self._batch.n_tokens = end
        return self._batch


def _traits(model: Any, context: Any, vocabulary: Any, exact_kv: bool) -> Traits:
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
        vocabulary=int(c.llama_vocab_n_tokens(vocabulary)),
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


__all__ = ["LlamaBackend", "open_llama"]
