"""Message text into a rendering and out of it again, so that it can never become a control token.

A string in a message that spells a control token is written in private-use characters before the template sees it
(`mask`). After rendering, what still spells a control token was written by the template alone. `Tokenizer.ids`
tokenises a rendering on that ground: the template's control tokens by id, stretches that were masked as plain text,
and everything else as llama.cpp does it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from superfluid.model.controls import Strings
from superfluid.model.vocabulary import Vocabulary

# A masked string is _MARK and three digits of base 256; these characters themselves are masked the same way, so that
# a text which holds them comes through. LEFT, RIGHT and HERE are kept free for whoever marks places in a rendering.
_MARK = "\ue000"
LEFT = "\uf8f0"
RIGHT = "\uf8f1"
HERE = "\uf8f2"
_RESERVED = (_MARK, LEFT, RIGHT, HERE)
_DIGIT = 0xE100
_MASKED = re.compile(f"{_MARK}([{chr(_DIGIT)}-{chr(_DIGIT + 255)}]{{3}})")


class Masks:
    """The strings that spell control tokens of a vocabulary, and how to hide them."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._texts = (*_RESERVED, *sorted(set(vocabulary.control) - set(_RESERVED)))
        self._numbers = {text: number for number, text in enumerate(self._texts)}
        self._strings = Strings(self._texts)

    def mask(self, text: str) -> str:
        """`text` with every control string and every reserved character in it masked."""
        parts: list[str] = []
        end = 0
        for start, found in self._strings.occurrences(text):
            parts += (text[end:start], _MARK, _digits(self._numbers[found]))
            end = start + len(found)
        if not parts:
            return text
        parts.append(text[end:])
        return "".join(parts)

    def mask_all(self, value: Any) -> Any:
        """A JSON value with every string in it masked, keys too."""
        if isinstance(value, str):
            return self.mask(value)
        if isinstance(value, Mapping):
            return {self.mask_all(key): self.mask_all(part) for key, part in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.mask_all(part) for part in value]
        return value

    def unmask(self, text: str) -> str:
        """The opposite of `mask`."""
        return _MASKED.sub(lambda match: self._text(match[1]) or match[0], text)

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
        ids: list[int] = []
        before, previous = self._vocabulary.seam(before)
        for segment, token in self._vocabulary.segments(rendered, previous):
            if segment:
                ids += self._text(self.masks.unmask(segment), before)
            if token is not None:
                ids.append(token)
            before = ""
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
        cuts = [at + 1 for at, found in self._vocabulary.controls.occurrences(text) if len(found) > 1] or range(
            1, len(text)
        )
        for cut in (*cuts, len(text)):
            ids += self._text(text[start:cut], text[max(0, start - 1) : start] or before)
            start = cut
        return ids


def _digits(number: int) -> str:
    return "".join(chr(_DIGIT + (number >> shift & 0xFF)) for shift in (16, 8, 0))
