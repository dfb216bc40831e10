"""The very tokens of replies that this daemon drew, found again by their text.

A client that resends a conversation sends text; tokenised anew it may split otherwise than it was drawn, and nothing
after that point would be warm. Memory only: what is forgotten costs a prefill.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Iterable

KEPT_TOKENS = 4 << 20
"""Tokens kept in all, four bytes each; the replies unused for longest go first."""


class ReplyMemory:
    """Finished replies, end of turn included, by a digest of their text without surrounding blanks."""

    def __init__(self) -> None:
        self._replies: OrderedDict[bytes, array[int]] = OrderedDict()
        self._tokens = 0

    def keep(self, text: str, tokens: Iterable[int]) -> None:
        key, drawn = _key(text), array("I", tokens)
        if not drawn or len(drawn) > KEPT_TOKENS:
            return
        self._tokens -= len(self._replies.pop(key, ()))
        self._replies[key] = drawn
        self._tokens += len(drawn)
        while self._tokens > KEPT_TOKENS:
            _, oldest = self._replies.popitem(last=False)
            self._tokens -= len(oldest)

    def find(self, text: str) -> tuple[int, ...] | None:
        """The tokens that were drawn for `text`, None where none are known."""
        key = _key(text)
        if key not in self._replies:
            return None
        self._replies.move_to_end(key)
        return tuple(self._replies[key])


def _key(text: str) -> bytes:
    return hashlib.blake2b(text.strip().encode("utf-8", "surrogatepass"), digest_size=16).digest()
