"""The scalar types of the wire, as annotations that the codecs read from dataclass fields."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Annotated


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number's width on the wire; `bits` is 8, 32 or 64 for integers, 0 for a single-precision float."""

    name: str
    bits: int

    @property
    def maximum(self) -> int:
        return (1 << self.bits) - 1


U8 = Annotated[int, Scalar("u8", 8)]
U32 = Annotated[int, Scalar("u32", 32)]
U64 = Annotated[int, Scalar("u64", 64)]
F32 = Annotated[float, Scalar("f32", 0)]

Span = tuple[U32, ...]
"""Token ids that a record put on the model's input."""

U64_MAX = (1 << 64) - 1

_SINGLE = struct.Struct("<f")


def single(value: float) -> float:
    """The nearest single-precision float, as Python holds it; infinite where `value` is too large."""
    try:
        return float(_SINGLE.unpack(_SINGLE.pack(float(value)))[0])
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def shortest_single(value: float) -> float:
    """The double whose repr is the shortest decimal that reads back as the same single: 0.7, not 0.699999988."""
    target = single(value)
    for digits in range(1, 10):
        candidate = float(f"{target:.{digits}g}")
        if single(candidate) == target:
            return candidate
    return target
