"""The seam between the worker's loop and the inference library.

Positions count from 0 and are dense: a sequence that holds n tokens has them at 0 to n - 1. Tokens are ids below
`Traits.vocabulary`, sequences are numbers below `Traits.sequences`.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from superfluid.engine.sampling import Recipe

State = bytes | bytearray
"""A sequence's KV as bytes. Only the backend that made it can read it."""


class LoadError(Exception):
    """The model or its context cannot be had; the text is for the user. A bug of ours is any other exception."""


class Decoded(Enum):
    """What became of a batch."""

    DONE = "done"
    NO_ROOM = "no room"
    """nothing was computed and no sequence changed; a smaller batch may pass"""
    STOPPED = "stopped"
    """given up on request; sequences of the batch may hold some of it: cut them back"""
    FAILED = "failed"
    """the sequences of the batch are in no known state: clear them"""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Some consecutive tokens of one sequence, the first at position `start`. With `draws`, the last one's logits
    are kept, to be sampled before the next decode."""

    sequence: int
    start: int
    tokens: array[int]
    draws: bool


@dataclass(frozen=True, slots=True)
class Traits:
    """What the loop must know of a loaded model. Sizes are bytes.

    `context` is tokens a sequence, as granted. `batch` is the most tokens a decode takes. `window` is the width of
    the narrowest sliding window, 0 where every layer keeps everything. `recurrent` says that some layer keeps one
    running state instead of a past: its sequences cannot be cut back at all. `swa_full` says that layers with a
    window keep everything all the same. `shifts` says that tokens can be taken out of the middle of a sequence.
    """

    context: int
    sequences: int
    vocabulary: int
    batch: int
    window: int
    recurrent: bool
    swa_full: bool
    shifts: bool
    devices: tuple[str, ...]
    gpu_layers: int
    model_bytes: int
    kv_bytes: int
    build: str


class Sampler(Protocol):
    """Chooses tokens for one lane. What it draws depends on the lane's tokens and the draw's bits alone."""

    def draw(self, stretch: int, bits: int) -> int:
        """The token after stretch number `stretch` of the batch decoded last, which had `draws`. `bits` is 32 bits
        of chance, of which greedy takes none. The token drawn counts as said for the penalties of the next one."""

    def close(self) -> None:
        """Free it. Drawing is no longer possible."""


class Backend(Protocol):
    """A loaded model with its sequences."""

    @property
    def traits(self) -> Traits: ...

    def decode(self, batch: Sequence[Stretch], stop: Callable[[], bool] | None = None) -> Decoded:
        """Compute the KV of all stretches, at most one of a sequence, after executing the copies and shifts that
        wait. `stop` is asked now and then on the way, whether to give up; it may raise, and answers no while a
        shift waits."""

    def sampler(self, stages: Recipe, said: Sequence[int]) -> Sampler:
        """A sampler for a lane whose tokens so far end with `said`, at least `sampling.PENALTY_WINDOW` of them
        where there are as many."""

    def gap(self, stretch: int) -> float:
        """By how much the highest logit stands above the second one after stretch number `stretch` of the batch
        decoded last, which had `draws`; 0.0 where that is no finite number."""

    def copy(self, source: int, target: int) -> None:
        """Make `target` equal to `source`. The data moves in the next decode: until then `target` must not be saved
        or copied, and neither of the two restored."""

    def cut(self, sequence: int, length: int) -> bool:
        """Keep the first `length` tokens. False where that failed; true is no proof (see `Tiers`)."""

    def shift(self, sequence: int, start: int, count: int) -> bool:
        """Take out `count` tokens from position `start` on, and move those behind them down. Only where
        `Traits.shifts`. The data moves in the next decode, all that waits in one pass: until then the sequence must
        not be saved or copied. After false it must be cleared."""

    def clear(self, sequence: int) -> None: ...

    def state_size(self, sequence: int) -> int:
        """The number of bytes that `save` would give."""

    def save(self, sequence: int) -> State | None:
        """The sequence's KV, None where that failed."""

    def restore(self, sequence: int, state: State) -> bool:
        """Put a saved state into an empty sequence. After false the sequence must be cleared."""

    def save_partial(self, sequence: int) -> State | None:
        """What `rewind` needs to come back to where the sequence is now: of layers that do not keep the past, their
        window or running state. None where that failed, or there are no such layers."""

    def partial_size(self, sequence: int) -> int:
        """The number of bytes that `save_partial` would give."""

    def rewind(self, sequence: int, length: int, partial: State) -> bool:
        """Cut back to `length` tokens, where `partial` was taken of a sequence of the same tokens. The sequence must
        hold that many, and no copy of or into it may wait. After false it must be cleared."""

    def first(self, sequence: int) -> int:
        """The smallest position from which on everything is there, -1 for an empty sequence."""

    def last(self, sequence: int) -> int:
        """The largest position, -1 for an empty sequence."""

    def is_end(self, token: int) -> bool:
        """Whether this token ends a turn."""

    def set_threads(self, count: int) -> None: ...

    def close(self) -> None: ...
