"""How far two token lists agree, and up to where kept KV may be used for one of them."""

from __future__ import annotations

from array import array

from superfluid.engine.backend import Traits


def common(left: array[int], right: array[int]) -> int:
    """The length of the longest common prefix, in a logarithmic number of block comparisons."""
    low, high = 0, min(len(left), len(right))
    if left[:high] == right[:high]:
        return high
    # left[:low] agrees, left[:high] does not.
    while high - low > 1:
        middle = (low + high) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle
    return low


def usable(traits: Traits, held: array[int], first: int, wanted: array[int], limit: int) -> int:
    """How many tokens of `wanted`, at most `limit`, the KV of `held` serves; `first` is its smallest position.

    KV that is used up to its end needs no cut, so it always serves. A cut is sound only where every layer still has
    what the token after it attends to: with a sliding window, from one window before the cut on (llama.cpp answers
    true to cuts where that does not hold); with recurrent layers, never.
    """
    length = min(common(held, wanted), limit)
    if length == len(held):
        return length
    if traits.recurrent:
        return 0
    if traits.window and first > max(0, length - traits.window):
        return 0
    return length
