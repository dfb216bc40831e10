"""A small deterministic backend with real sequence, copy and failure semantics, for tests.

Its KV really stores tokens by position, and the next token is a hash of what is there: any mistake in keeping KV
shows as a wrong token, which `FakeModel.oracle` computes from the tokens alone. Copies and shifts move their data in
the next decode, and with a sliding window only the last positions stay. What the real library answers "true" to and
then gets wrong, this one answers "true" to and gets wrong.
"""

from __future__ import annotations

import struct
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from superfluid.engine.backend import Decoded, LoadError, State, Stretch, Traits
from superfluid.engine.fake_model import FakeModel
from superfluid.engine.sampling import Recipe
from superfluid.protocol.ticks import Load

_SLACK = 4
"""Positions that a window keeps beyond its width, as the real cache prunes lazily."""
_GONE = 0xFFFFFFFF
_HEADER = struct.Struct("<III")
_MAGIC = 0x464B5653
_PARTIAL_MAGIC = 0x464B5650
_MAX_BATCH = 2048
_STEP = 0.001
"""Seconds between two questions whether to give up."""
_LONG = 60.0


@dataclass(slots=True)
class _Stream:
    """A sequence: a buffer with a token in each position, of which the first `length` count, and the smallest
    position from which on every layer still has them. What is cut stays in the buffer, as in the real one."""

    buffer: array[int]
    length: int = 0
    first: int = 0


class FakeSampler:
    def __init__(self, backend: FakeBackend, stages: Recipe, said: Sequence[int]) -> None:
        self._backend: FakeBackend | None = backend
        self._stages = stages
        self._said = list(said)

    def draw(self, stretch: int, bits: int) -> int:
        assert self._backend is not None, "a freed sampler draws"
        seen = self._backend.seen(stretch)
        token = self._backend.model.choose(seen, None if self._stages.greedy else bits, self._stages, self._said)
        self._said.append(token)
        return token

    def close(self) -> None:
        assert self._backend is not None, "a sampler is freed twice"
        self._backend.samplers -= 1
        self._backend = None


class FakeBackend:
    """The fake context. `samplers` counts the ones not freed."""

    def __init__(self, model: FakeModel, context: int, sequences: int, sleep: Callable[[float], None]) -> None:
        self.model = model
        self.samplers = 0
        self._sleep = sleep
        self._streams = [_Stream(array("I", [_GONE] * context)) for _ in range(sequences)]
        self._pending: list[tuple[int, int]] = []
        self._shifts: list[tuple[int, int, int]] = []
        self._contexts: list[array[int] | None] = []
        self._decodes = self._saves = self._restores = 0
        self._traits = Traits(
            context=context,
            sequences=sequences,
            vocabulary=model.vocabulary,
            batch=_MAX_BATCH + sequences,
            window=model.window,
            recurrent=bool(model.recurrent),
            swa_full=False,
            shifts=not (model.window or model.recurrent),
            devices=("CPU",),
            gpu_layers=0,
            model_bytes=model.vocabulary,
            kv_bytes=context * sequences * 4,
            build="fake",
        )

    @property
    def traits(self) -> Traits:
        return self._traits

    def decode(self, batch: Sequence[Stretch], stop: Callable[[], bool] | None = None) -> Decoded:
        assert batch, "an empty batch"
        assert sum(len(stretch.tokens) for stretch in batch) <= self._traits.batch, "the batch is too long"
        assert len({stretch.sequence for stretch in batch}) == len(batch), "two stretches of one sequence"
        self._decodes += 1
        if self.model.fail_every and self._decodes % self.model.fail_every == 0:
            for stretch in batch:  # half of it is there, as after an aborted decode
                self._append(stretch, len(stretch.tokens) // 2)
            return Decoded.FAILED
        while self._decodes == self.model.hangs_on:
            self._sleep(_LONG)
        shifting = bool(self._shifts)
        self._execute()
        crowded = self.model.no_room_every and self._decodes % self.model.no_room_every == 0 and len(batch) > 1
        if self.model.room:
            free = self.model.room - sum(stream.length > 0 for stream in self._streams)
            crowded = bool(crowded) or sum(len(stretch.tokens) for stretch in batch) > free
        if crowded or any(stretch.start + len(stretch.tokens) > self._traits.context for stretch in batch):
            return Decoded.NO_ROOM
        if self._given_up(batch, stop):
            assert not shifting, "a shift is given up half way"
            for stretch in batch:
                self._append(stretch, len(stretch.tokens) // 2)
            return Decoded.STOPPED
        self._contexts = []
        for stretch in batch:
            stream = self._streams[stretch.sequence]
            self._append(stretch, len(stretch.tokens))
            self._contexts.append(self._seen(stream) if stretch.draws else None)
            if self.model.window:
                stream.first = max(stream.first, stream.length - self.model.window - _SLACK)
        return Decoded.DONE

    def _given_up(self, batch: Sequence[Stretch], stop: Callable[[], bool] | None) -> bool:
        """Take the time that the batch takes: whether it was stopped meanwhile."""
        seconds = sum(len(stretch.tokens) for stretch in batch) * self.model.delay_us / 1e6
        if stop is None:
            if seconds:
                self._sleep(seconds)
            return False
        while not (stopped := stop()) and seconds > 0:
            self._sleep(min(seconds, _STEP))
            seconds -= _STEP
        return stopped

    def _append(self, stretch: Stretch, count: int) -> None:
        stream = self._streams[stretch.sequence]
        assert stretch.start == stream.length, "positions are not consecutive"
        stream.buffer[stretch.start : stretch.start + count] = stretch.tokens[:count]
        stream.length += count

    def _seen(self, stream: _Stream) -> array[int]:
        """What the last token attends to: all of it in the layers without a window, the last ones in the others.
        Where those are missing, `_GONE` is seen."""
        seen = stream.buffer[: stream.length]
        if self.model.window:
            for position in range(max(0, len(seen) - self.model.window), min(stream.first, len(seen))):
                seen[position] = _GONE
        return seen

    def _execute(self) -> None:
        """Move what copies and shifts wait to move."""
        for source, target in self._pending:
            self._streams[target].buffer = self._streams[source].buffer[:]
        for sequence, start, count in self._shifts:
            buffer = self._streams[sequence].buffer
            del buffer[start : start + count]
            buffer.extend([_GONE] * count)
        self._pending, self._shifts = [], []

    def sampler(self, stages: Recipe, said: Sequence[int]) -> FakeSampler:
        self.samplers += 1
        return FakeSampler(self, stages, said)

    def seen(self, stretch: int) -> array[int]:
        """What a stretch of the last batch attends to at its end."""
        seen = self._contexts[stretch]
        assert seen is not None, "a stretch without logits is sampled"
        return seen

    def gap(self, stretch: int) -> float:
        return self.model.gap(self.seen(stretch))

    def copy(self, source: int, target: int) -> None:
        assert source != target, "a copy onto itself"
        self._streams[target].length = self._streams[source].length
        self._streams[target].first = self._streams[source].first
        self._unshift(target)
        self._pending.append((source, target))

    def cut(self, sequence: int, length: int) -> bool:
        stream = self._streams[sequence]
        if self.model.recurrent and 0 < length < stream.length:
            stream.buffer[0] = _GONE
        stream.length = min(stream.length, length)
        return True

    def shift(self, sequence: int, start: int, count: int) -> bool:
        assert self._traits.shifts, "a shift of what cannot be shifted"
        stream = self._streams[sequence]
        assert 0 <= start < start + count <= stream.length, "a shift of tokens that are not there"
        stream.length -= count
        if start < stream.length:  # nothing has to move where the end was taken
            self._shifts.append((sequence, start, count))
        return True

    def _unshift(self, sequence: int) -> None:
        self._shifts = [shift for shift in self._shifts if shift[0] != sequence]

    def clear(self, sequence: int) -> None:
        stream = self._streams[sequence]
        stream.length = stream.first = 0
        self._unshift(sequence)

    def state_size(self, sequence: int) -> int:
        return _HEADER.size + self._streams[sequence].length * 4

    def save(self, sequence: int) -> State | None:
        self._saves += 1
        if self.model.save_fails_every and self._saves % self.model.save_fails_every == 0:
            return None
        stream = self._streams[sequence]
        held, first = stream.buffer[: stream.length], stream.first
        if self.model.window:  # of sliding layers the real one saves the window alone
            first = max(first, stream.length - self.model.window)
        return _HEADER.pack(_MAGIC, stream.length, first) + held.tobytes()

    def restore(self, sequence: int, state: State) -> bool:
        stream = self._streams[sequence]
        assert not stream.length, "a state is restored over another"
        self._restores += 1
        if len(state) < _HEADER.size:
            return False
        magic, length, first = _HEADER.unpack_from(state)
        held = array("I", state[_HEADER.size :][: (len(state) - _HEADER.size) // 4 * 4])
        spoilt = bool(self.model.restore_fails_every and self._restores % self.model.restore_fails_every == 0)
        if spoilt:  # it stops half way, as where the sequence has no room
            held = held[: len(held) // 2]
        stream.buffer[: len(held)] = held
        stream.length, stream.first = len(held), first
        return bool(magic == _MAGIC and len(held) == length)

    def partial_size(self, sequence: int) -> int:
        return len(self._partial(self._streams[sequence]))

    def save_partial(self, sequence: int) -> State | None:
        if not (self.model.window or self.model.recurrent):
            return None
        return self._partial(self._streams[sequence])

    def _partial(self, stream: _Stream) -> bytes:
        """The running state knows everything, a window its last tokens."""
        first = 0 if self.model.recurrent else max(stream.first, stream.length - self.model.window)
        kept = stream.buffer[first : stream.length]
        return _HEADER.pack(_PARTIAL_MAGIC, stream.length, first) + kept.tobytes()

    def rewind(self, sequence: int, length: int, partial: State) -> bool:
        stream = self._streams[sequence]
        assert stream.length >= length, "the attention part does not cover a partial state"
        self._restores += 1
        magic, held, first = _HEADER.unpack_from(partial)
        assert (magic, held) == (_PARTIAL_MAGIC, length), "a partial state of another length"
        spoilt = bool(self.model.restore_fails_every and self._restores % self.model.restore_fails_every == 0)
        if not spoilt:
            stream.buffer[first:length] = array("I", partial[_HEADER.size :])
            stream.length = length
            stream.first = 0 if self.model.recurrent and not self.model.window else first
        return not spoilt

    def first(self, sequence: int) -> int:
        stream = self._streams[sequence]
        if not stream.length:
            return -1
        return stream.length - 1 if self.model.recurrent else stream.first

    def last(self, sequence: int) -> int:
        stream = self._streams[sequence]
        return stream.length - 1 if stream.length > stream.first else -1

    def is_end(self, token: int) -> bool:
        return token == self.model.end

    def set_threads(self, count: int) -> None:
        assert count > 0

    def close(self) -> None:
        assert not self.samplers, f"{self.samplers} samplers were not freed"


def open_fake(load: Load, options: str, progress: Callable[[float], bool]) -> FakeBackend:
    """A fake backend as `--fake` asks for it. Raises LoadError."""
    model = FakeModel.parse(options)
    for step in range(5):
        if not progress(step / 4):
            raise LoadError("given up")
    if model.load_error:
        raise LoadError("told to fail")
    return FakeBackend(model, load.context or 4096, load.lanes + load.spare, time.sleep)
