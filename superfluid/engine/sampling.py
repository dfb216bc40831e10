"""What a draw depends on: seed, position and the tokens before it, nothing else (architecture, "Sampling")."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, replace
from hashlib import blake2b

from superfluid.protocol.records import GenParams
from superfluid.protocol.ticks import LaneOptions

_RESERVED = 0xFFFFFFFF
"""What llama.cpp reads as "seed me from the clock"."""

_COLDEST = 1e-30
"""Below it, logits divided by the temperature leave single precision; the limit of ever colder draws is greedy."""

PENALTY_WINDOW = 64
"""How many tokens of a lane's input, the last ones, its penalties look at."""

_HEAVIEST = 1e9
"""Bound of a bias or penalty: finite, so that no sum of two is NaN."""

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
    """How to choose a token. First `bias` (a sum for each token; with `no_end`, what ends a turn is never drawn) and
    the penalties, then the stages that are on, in order; no temperature means greedy."""

    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    temperature: float | None = None
    bias: tuple[tuple[int, float], ...] = ()
    no_end: bool = False
    repeat: float = 1.0
    frequency: float = 0.0
    presence: float = 0.0

    @property
    def greedy(self) -> bool:
        return self.temperature is None

    @property
    def penalises(self) -> bool:
        return (self.repeat, self.frequency, self.presence) != (1.0, 0.0, 0.0)


GREEDY = Recipe()


def recipe(params: GenParams, options: LaneOptions | None = None) -> Recipe:
    """The stages that `params` and `options` ask for. A number that makes no sense is as if it were not there."""
    stages = _stages(params)
    if options is None or options == LaneOptions():
        return stages
    return replace(
        stages,
        bias=tuple((token, _bounded(bias)) for token, bias in options.logit_bias if not math.isnan(bias)),
        no_end=options.ignore_end,
        repeat=options.repeat_penalty if 0.0 < options.repeat_penalty < math.inf else 1.0,
        frequency=_bounded(options.frequency_penalty),
        presence=_bounded(options.presence_penalty),
    )


def _bounded(weight: float) -> float:
    return 0.0 if math.isnan(weight) else max(-_HEAVIEST, min(weight, _HEAVIEST))


def _stages(params: GenParams) -> Recipe:
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
