"""Fill-in-the-middle: the marker tokens of a vocabulary, and the prompt that asks for a middle (spec: wire-facts,
8.15)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from superfluid.model.vocabulary import Vocabulary
from superfluid.protocol.codes import FimMode
from superfluid.protocol.refusals import NoFim

NEEDED = ("fim_pre", "fim_suf", "fim_mid")
"""Markers without which nothing can be asked; GGUF's names for them."""


@dataclass(frozen=True, slots=True)
class FimDialect:
    """The markers of a model. `ends` are tokens at which a middle is over, the markers themselves among them."""

    before: int
    after: int
    middle: int
    ends: frozenset[int]

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> Self:
        """Raises NoFim, naming what the vocabulary lacks."""
        markers = vocabulary.fim
        if missing := [name for name in NEEDED if name not in markers]:
            raise NoFim(missing)
        before, after, middle = (markers[name] for name in NEEDED)
        return cls(before, after, middle, vocabulary.end_tokens | frozenset(markers.values()))

    def prompt(self, vocabulary: Vocabulary, prefix: str, suffix: str, mode: FimMode) -> tuple[int, ...]:
        """What the model continues with the text between `prefix` and `suffix`, neither of which can spell a token.

        PSM is prefix, suffix; SPM is suffix, prefix; each part after its marker, and the middle's marker last.
        """
        # Where a vocabulary puts a space before text at a start, that belongs to the prefix alone: a suffix goes on.
        tail = vocabulary.tokenize_long(suffix, special=False, before="\n")
        head = vocabulary.tokenize_long(prefix, special=False)
        bos = () if vocabulary.bos is None or not vocabulary.adds_bos else (vocabulary.bos,)
        first, second = (self.before, *head), (self.after, *tail)
        if mode is FimMode.SPM:
            first, second = second, first
        return (*bos, *first, *second, self.middle)
