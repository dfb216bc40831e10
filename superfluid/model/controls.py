"""Where in a text the strings stand that spell control tokens."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator


class Strings:
    """A set of strings to find. Time to scan a text is in proportion to its length, however many they are."""

    __slots__ = ("_first", "_lengths", "_texts")

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = frozenset(filter(None, texts))
        lengths: dict[str, set[int]] = {}
        for text in self._texts:
            lengths.setdefault(text[:2], set()).add(len(text))
        # a vocabulary can have thousands of control tokens: those at a place are found by first characters and length
        self._lengths = {start: tuple(sorted(found, reverse=True)) for start, found in lengths.items()}
        firsts = "".join(re.escape(first) for first in sorted({text[0] for text in self._texts}))
        self._first = re.compile(f"[{firsts}]" if firsts else r"(?!)")

    def occurrences(self, text: str) -> Iterator[tuple[int, str]]:
        """(index, string) of every one of them in `text`, leftmost longest, none overlapping."""
        at = 0
        while (match := self._first.search(text, at)) is not None:
            at = match.start()
            for length in (*self._lengths.get(text[at : at + 2], ()), *self._lengths.get(text[at], ())):
                if text[at : at + length] in self._texts:
                    yield at, text[at : at + length]
                    at += length
                    break
            else:
                at += 1
