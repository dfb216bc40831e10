"""llama.cpp behind the `Backend` protocol: with `context`, `samplers` and `devices`, all that knows the C library.

The raw functions are used throughout, since they alone tell why something failed. Everything that C owns is freed
through one ExitStack, in the reverse order of its making.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cached_property
from typing import Any

import llama_cpp.llama_cpp as c
import numpy as np

from superfluid.engine.backend import Decoded, LoadError, Sampler, State, Stretch, Traits
from superfluid.engine.breaker import Breaker
from superfluid.engine.context import listen, load_model, make_context, traits_of
from superfluid.engine.samplers import Logits, make_sampler
from superfluid.engine.sampling import Recipe
from superfluid.protocol.ticks import Load

_RESULTS = {0: Decoded.DONE, 1: Decoded.NO_ROOM, 2: Decoded.STOPPED}
_PARTIAL = c.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY


def open_llama(load: Load, threads: int, progress: Callable[[float], bool]) -> LlamaBackend:
    """Load a model and make its context. Raises LoadError with the reason."""
    listen()
    with ExitStack() as stack:
        c.llama_backend_init()
        stack.callback(c.llama_backend_free)
        model = load_model(load, progress)
        stack.callback(c.llama_model_free, model)
        context = make_context(load, threads, model)
        stack.callback(c.llama_free, context)
        if not c.llama_get_memory(context) or c.llama_model_has_encoder(model):
            raise LoadError(f"{load.model}: keeps no KV, so it is no model for conversations")
        return LlamaBackend(model, context, traits_of(model, context, exact_kv=not load.kv_type), stack.pop_all())


class LlamaBackend:
    """A model and its context. Make it with `open_llama`."""

    def __init__(self, model: Any, context: Any, traits: Traits, stack: ExitStack) -> None:
        self._stack = stack
        self._context = context
        self._vocabulary = c.llama_model_get_vocab(model)
        self._memory = c.llama_get_memory(context)
        self._traits = traits
        self._batch = _Batch(self._traits.batch, self._traits.sequences)
        self._row = ctypes.c_float * self._traits.vocabulary
        self._logits: dict[int, Logits] = {}
        """by address: the library has a few rows, and writes to them again and again"""
        self._is_end: dict[int, bool] = {}

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
        address = ctypes.addressof(c.llama_get_logits_ith(self._context, self._batch.last_rows[stretch]).contents)
        known = self._logits.get(address)
        if known is None:
            known = self._logits[address] = np.frombuffer(memoryview(self._row.from_address(address)), np.float32)
        return known

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
        known = self._is_end.get(token)
        if known is None:
            known = self._is_end[token] = bool(c.llama_vocab_is_eog(self._vocabulary, token))
        return known

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
        self._addresses = [ctypes.addressof(number) for number in self._numbers]
        self._sequences = (ctypes.c_void_p * rows)()
        self._logits = (ctypes.c_int8 * rows)()
        self.last_rows: list[int] = []
        self._batch = c.llama_batch()
        self._batch.token = ctypes.cast(self._tokens, ctypes.POINTER(c.llama_token))
        self._batch.pos = ctypes.cast(self._positions, ctypes.POINTER(c.llama_pos))
        self._batch.n_seq_id = ctypes.cast(self._counts, ctypes.POINTER(ctypes.c_int32))
        self._batch.seq_id = ctypes.cast(self._sequences, ctypes.POINTER(ctypes.POINTER(c.llama_seq_id)))
        self._batch.logits = ctypes.cast(self._logits, ctypes.POINTER(ctypes.c_int8))

    def fill(self, stretches: Sequence[Stretch]) -> Any:
        for row in self.last_rows:
            self._logits[row] = 0
        self.last_rows = []
        end = 0
        for stretch in stretches:
            count = len(stretch.tokens)
            begin, end = end, end + count
            self._tokens[begin:end] = stretch.tokens.tolist()
            self._positions[begin:end] = list(range(stretch.start, stretch.start + count))
            self._sequences[begin:end] = [self._addresses[stretch.sequence]] * count
            self._logits[end - 1] = 1 if stretch.draws else 0
            self.last_rows.append(end - 1)
        self._batch.n_tokens = end
        return self._batch
