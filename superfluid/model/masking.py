"""Message text into a rendering and out of it again, so that it can never become a control token.

A string in a message that spells a control token is written in private-use characters before the template sees it
(`mask`). After rendering, what still spells a control token was written by the template alone. `Tokenizer.ids`
tokenises a rendering on that ground: the template's control tokens by id, stretches that were masked as plain text,
and everything else as llama.cpp does it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from superfluid.model.vocabulary import Vocabulary

# A masked string is _MARK and three digits of base 256; these characters themselves are masked the same way, so that
# a text which holds them comes through. LEFT and RIGHT are kept free for whoever marks places in a rendering.
_MARK = "\ue000"
LEFT = "\uf8f0"
RIGHT = "\uf8f1"
_RESERVED = (_MARK, LEFT, RIGHT)
_DIGIT = 0xE100
_MASKED = re.compile(f"{_MARK}([{chr(_DIGIT)}-{chr(_DIGIT + 255)}]{{3}})")


class Masks:
    """The strings that spell control tokens of a vocabulary. Time to scan a text is in proportion to its length."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._texts = (*_RESERVED, *sorted(vocabulary.control))
        self._numbers = {text: number for number, text in enumerate(self._texts)}
        lengths: dict[str, set[int]] = {}
        for text in self._texts:
            lengths.setdefault(text[:2], set()).add(len(text))
        # a vocabulary can have thousands of control tokens: those at a place are found by first characters and length
        self._lengths = {start: tuple(sorted(found, reverse=True)) for start, found in lengths.items()}
        firsts = "".join(re.escape(first) for first in sorted({text[0] for text in self._texts}))
        self._first = re.compile(f"[{firsts}]")

    def mask(self, text: str) -> str:
        """`text` with every control string and every reserved character in it masked."""
        parts: list[str] = []
        end = 0
        for start, found in self.occurrences(text):
            parts += (text[end:start], _MARK, _digits(self._numbers[found]))
            end = start + len(found)
        if not parts:
            return text
        parts.append(text[end:])
        return "".join(parts)

    def unmask(self, text: str) -> str:
        """The opposite of `mask`."""
        return _MASKED.sub(lambda match: self._text(match[1]) or match[0], text)

    def occurrences(self, text: str) -> Iterator[tuple[int, str]]:
        """(index, string) of every control string and reserved character, leftmost longest, none overlapping."""
        at = 0
        while (match := self._first.search(text, at)) is not None:
            at = match.start()
            for length in (*self._lengths.get(text[at : at + 2], ()), *self._lengths.get(text[at], ())):
                if text[at : at + length] in self._numbers:
                    yield at, text[at : at + length]
                    at += length
                    break
            else:
                at += 1

    def _text(self, digits: str) -> str | None:
        number = 0
        for digit in digits:
            number = number * 256 + ord(digit) - _DIGIT
        return self._texts[number] if number < len(self._texts) else None


class Tokenizer:
    """Renderings of masked messages into token ids."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self.masks = Masks(vocabulary)
        # an unknown token may stand for a character of ordinary text
        unknown = vocabulary.metadata("tokenizer.ggml.unknown_token_id") or ""
        self._never = vocabulary.control_ids - ({int(unknown)} if unknown.isdecimal() else set())

    def ids(self, rendered: str, *, before: str = "") -> list[int]:
        """Token ids of a part of a rendering whose message texts were masked; `before` is what comes right before it.

        Without masked stretches, these are the ids that llama.cpp gives for the text with special tokens allowed.
        """
        frame = [
            (at, text)
            for at, text in self.masks.occurrences(rendered)
            if text in self._vocabulary.control and text not in _RESERVED
        ]
        if _MASKED.search(rendered) is None:
            ids = self._vocabulary.tokenize_long(rendered, special=True, before=before)
            # vocabularies that merge freely can join a control token out of pieces of plain text
            spelled = [self._vocabulary.control[text] for _, text in frame]
            if [token for token in ids if token in self._never] == [
                token for token in spelled if token in self._never
            ]:
                return ids
        return self._segments(rendered, frame, before)

    def _segments(self, rendered: str, frame: list[tuple[int, str]], before: str) -> list[int]:
        """Control tokens of the frame by id, the text between them as plain text, masked strings and all."""
        control = self._vocabulary.control
        ids: list[int] = []
        end = 0
        previous: int | None = None
        for at, text in (*frame, (len(rendered), "")):
            token = control[text] if text else None
            segment = rendered[end:at]
            if previous in self._vocabulary.strip_right:
                segment = segment.lstrip(" \t\r\n\v\f")
            if token in self._vocabulary.strip_left:
                segment = segment.rstrip(" \t\r\n\v\f")
            ids += self._text(self.masks.unmask(segment), before if previous is None else "")
            if token is not None:
                ids.append(token)
            previous, end = token, at + len(text)
        return ids

    def _text(self, text: str, before: str) -> list[int]:
        """Ids of text in which nothing may be a control token."""
        ids = self._vocabulary.tokenize_long(text, special=False, before=before)
        if self._never.isdisjoint(ids):
            return ids
        if len(text) == 1:
            # a single character that is a control token: there is no other way to say it
            return [token for token in ids if token not in self._never]
        ids, start = [], 0
        cuts = [at + 1 for at, found in self.masks.occurrences(text) if len(found) > 1] or range(1, len(text))
        for cut in (*cuts, len(text)):
            ids += self._text(text[start:cut], text[max(0, start - 1) : start] or before)
            start = cut
        return ids


def _digits(number: int) -> str:
    return "".join(chr(_DIGIT + (number >> shift & 0xFF)) for shift in (16, 8, 0))
