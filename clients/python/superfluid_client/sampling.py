"""How tokens are drawn."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class Sampling:
    """A temperature of 0 is greedy, a `top_k` of 0 is off, the seed is random unless given."""

    temperature: float = 0.7
    top_p: float = 0.95
    min_p: float = 0.0
    top_k: int = 20
    seed: int = field(default_factory=lambda: secrets.randbits(63))

    @classmethod
    def greedy(cls) -> Sampling:
        """The likeliest token, always."""
        return cls(temperature=0.0, top_p=1.0, min_p=0.0, top_k=0, seed=0)

    def with_seed(self, seed: int) -> Sampling:
        """The same, with other random draws."""
        return replace(self, seed=seed)

    def to_wire(self) -> dict[str, Any]:
        """`params` of a request."""
        return asdict(self)

    @classmethod
    def from_wire(cls, params: Mapping[str, Any]) -> Sampling:
        """From `params` of a reply."""
        return cls(
            temperature=params["temperature"],
            top_p=params["top_p"],
            min_p=params["min_p"],
            top_k=params["top_k"],
            seed=params["seed"],
        )
