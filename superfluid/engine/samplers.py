"""How a token is chosen: by llama.cpp's samplers, or by looking for the highest of the logits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import llama_cpp.llama_cpp as c
import numpy as np
from numpy.typing import NDArray

from superfluid.engine.backend import Sampler
from superfluid.engine.sampling import PENALTY_WINDOW, Recipe

Logits = NDArray[np.float32]
"""One logit a token of the vocabulary."""


class Computed(Protocol):
    """What was computed last. A stretch is the number of one in the last batch, which had `draws`."""

    @property
    def vocabulary(self) -> int: ...

    @property
    def ends(self) -> tuple[int, ...]:
        """Every token that ends a turn."""

    def logits(self, stretch: int) -> Logits:
        """In memory that may be written to, until the next decode."""

    def sample(self, chain: Any, stretch: int) -> int:
        """Let a chain of llama.cpp's samplers choose, and accept, the token."""


def make_sampler(computed: Computed, stages: Recipe, said: Sequence[int]) -> Sampler:
    """A sampler for a lane whose tokens so far end with `said`."""
    bias = _bias(computed, stages)
    if stages.greedy and not stages.penalises:
        return HighestSampler(computed, bias)
    return ChainSampler(computed, stages, bias, said)


def _bias(computed: Computed, stages: Recipe) -> dict[int, float]:
    """What is added to the logits of tokens that there are."""
    bias: dict[int, float] = {}
    for token, weight in stages.bias:
        if token < computed.vocabulary:
            bias[token] = bias.get(token, 0.0) + weight
    if stages.no_end:
        bias |= dict.fromkeys(computed.ends, float("-inf"))
    return bias


class HighestSampler:
    """Takes the token with the highest logit, the lowest id of equals. A chain would put a whole vocabulary into an
    array of its own first, for every token."""

    def __init__(self, computed: Computed, bias: dict[int, float]) -> None:
        self._computed = computed
        self._biased = np.fromiter(bias.keys(), np.intp, len(bias))
        self._bias = np.fromiter(bias.values(), np.float32, len(bias))
        self._lowered = frozenset(bias) if all(weight <= 0 for weight in bias.values()) else None
        """the tokens with a bias, where none is raised by it"""

    def draw(self, stretch: int, bits: int) -> int:
        logits = self._computed.logits(stretch)
        if self._lowered is not None:
            highest = int(logits.argmax())
            if highest not in self._lowered:
                return highest
        unbiased = logits[self._biased]
        logits[self._biased] += self._bias
        highest = int(logits.argmax())
        logits[self._biased] = unbiased
        return highest

    def close(self) -> None:
        """There is nothing to free."""


class ChainSampler:
    """A chain of llama.cpp's samplers, whose last stage is seeded anew for every draw."""

    def __init__(self, computed: Computed, stages: Recipe, bias: dict[int, float], said: Sequence[int]) -> None:
        self._computed = computed
        self._greedy = stages.greedy
        self._chain = c.llama_sampler_chain_init(c.llama_sampler_chain_default_params())
        self._fixed = 0
        if bias:
            entries = (c.llama_logit_bias * len(bias))(*bias.items())
            self._add(c.llama_sampler_init_logit_bias(computed.vocabulary, len(bias), entries))
        if stages.penalises:
            weights = stages.repeat, stages.frequency, stages.presence
            self._add(c.llama_sampler_init_penalties(computed.vocabulary, PENALTY_WINDOW, *weights))
            for token in said:
                c.llama_sampler_accept(self._chain, token)
        if stages.greedy:
            self._add(c.llama_sampler_init_greedy())
        if stages.top_k is not None:
            self._add(c.llama_sampler_init_top_k(stages.top_k))
        if stages.top_p is not None:
            self._add(c.llama_sampler_init_top_p(stages.top_p, 1))
        if stages.min_p is not None:
            self._add(c.llama_sampler_init_min_p(stages.min_p, 1))
        if stages.temperature is not None:
            self._add(c.llama_sampler_init_temp(stages.temperature))

    def _add(self, stage: Any) -> None:
        c.llama_sampler_chain_add(self._chain, stage)
        self._fixed += 1

    def draw(self, stretch: int, bits: int) -> int:
        if not self._greedy:
            if c.llama_sampler_chain_n(self._chain) > self._fixed:
                c.llama_sampler_free(c.llama_sampler_chain_remove(self._chain, self._fixed))
            c.llama_sampler_chain_add(self._chain, c.llama_sampler_init_dist(bits))
        return self._computed.sample(self._chain, stretch)

    def close(self) -> None:
        if self._chain is not None:
            c.llama_sampler_free(self._chain)
            self._chain = None
