"""What the fake model says: replies written beforehand, each behind what it answers."""

from __future__ import annotations

import json
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from superfluid.engine.backend import LoadError


@dataclass(frozen=True, slots=True)
class Line:
    """`tokens` are what comes right before the reply, `length` of them, and the reply."""

    tokens: tuple[int, ...]
    length: int


@dataclass(frozen=True, slots=True)
class Script:
    """Lines of a model. What comes next depends on nothing but the tokens so far, as with any model."""

    lines: tuple[Line, ...] = ()

    @classmethod
    def read(cls, path: Path) -> Script:
        """A JSON array of `{"after": [token, ...], "say": [token, ...]}`. Raises LoadError."""
        try:
            entries = json.loads(path.read_text())
            return cls(tuple(Line((*entry["after"], *entry["say"]), len(entry["after"])) for entry in entries))
        except (OSError, ValueError, TypeError, KeyError) as fault:
            raise LoadError(f"the script {path}: {fault!r}") from None

    def next(self, seen: Sequence[int]) -> int | None:
        """The token after `seen`, by the line of which most is there; None where no line is going on."""
        found, best = None, -1
        for line in self.lines:
            for place in range(len(line.tokens) - 1, max(line.length, best + 1) - 1, -1):
                if _ends_with(seen, line.tokens[:place]):
                    found, best = line.tokens[place], place
                    break
        return found


NO_SCRIPT = Script()


def _ends_with(seen: Sequence[int], tokens: tuple[int, ...]) -> bool:
    if not tokens or len(seen) < len(tokens) or seen[-1] != tokens[-1]:
        return False
    return tuple(array("I", seen[len(seen) - len(tokens) :])) == tokens
