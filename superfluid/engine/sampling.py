"""What a draw depends on: the seed and the position, nothing else (architecture, "Sampling")."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from hashlib import blake2b

from superfluid.protocol.records import GenParams

_RESERVED = 0xFFFFFFFF
"""What llama.cpp reads as "seed me from the clock"."""

_COLDEST = 1e-30
"""Below it, logits divided by the temperature leave single precision; the limit of ever colder draws is greedy."""

_BOTH = struct.Struct("<QQ")


def draw(seed: int, position: int) -> int:
    """32 bits of chance for the token at `position` of a conversation; never 0xFFFFFFFF. Both arguments are u64."""
    counter = 0
    while True:
        digest = blake2b(_BOTH.pack(seed, position), digest_size=4, salt=counter.to_bytes(2, "little")).digest()
        bits = int.from_bytes(digest, "little")
        if bits != _RESERVED:
            return bits
        counter += 1


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to choose a token: the stages that are on, in order; all None means greedy."""

    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    temperature: float | None = None

    @property
    def greedy(self) -> bool:
        return self.temperature is None


GREEDY = Recipe()


def recipe(params: GenParams) -> Recipe:
    """The stages that `params` ask for.

    A temperature of 0 is greedy. So are `top_k` 1 and `top_p` 0, which leave the single most likely token: said
    as greedy, a tie goes to the lowest id there as well. NaN compares false, and so is never on.
    """
    if not params.temperature > _COLDEST or params.top_k == 1 or params.top_p <= 0.0:
        return GREEDY
    return Recipe(
        top_k=min(params.top_k, (1 << 31) - 1) if params.top_k > 0 else None,
        top_p=params.top_p if params.top_p < 1.0 else None,
        min_p=params.min_p if params.min_p > 0.0 else None,
        temperature=params.temperature,
    )
