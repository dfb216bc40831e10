"""Up to where kept KV may be used for a prompt."""

from __future__ import annotations

from superfluid.engine.backend import Traits


def usable(traits: Traits, shared: int, held: int, first: int, limit: int) -> int:
    """How many tokens of a prompt, at most `limit`, the KV of `held` tokens serves that has the first `shared` in
    common with it; `first` is its smallest position.

    KV that is used up to its end needs no cut, so it always serves. A cut is sound only where every layer still has
    what the token after it attends to: with a sliding window, from one window before the cut on (llama.cpp answers
    true to cuts where that does not hold); with recurrent layers, never.
    """
    length = min(shared, limit)
    if length == held:
        return length
    if traits.recurrent:
        return 0
    if traits.window and first > max(0, length - traits.window):
        return 0
    return length
