"""What the fake model says: after any tokens a token that is a hash of them, or what a script tells it to.

A function of its arguments alone, so that tests can compute what a session has to answer.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path

from superfluid.engine.backend import LoadError
from superfluid.engine.sampling import GREEDY, PENALTY_WINDOW, Recipe
from superfluid.engine.script import NO_SCRIPT, Script


@dataclass(frozen=True, slots=True)
class FakeModel:
    """What the fake pretends to be.

    With `room`, a decode has room for as many tokens only, less those of every sequence that is not empty.

    Drawn tokens lie in `low` to `vocabulary - 1`; about one draw in `end_every` is the end token `end` (0: never).
    Each `fail_every`-th decode fails, each `no_room_every`-th finds no room for several sequences; likewise saves
    and restores. `delay_us` is slept for each row decoded. Decode number `hangs_on` never returns.
    `load_error` makes the load fail. What `script` has a reply to is answered with that, whatever the sampling.
    """

    vocabulary: int = 49152
    low: int = 17
    end: int = 2
    end_every: int = 0
    window: int = 0
    recurrent: int = 0
    fail_every: int = 0
    no_room_every: int = 0
    room: int = 0
    delay_us: int = 0
    hangs_on: int = 0
    save_fails_every: int = 0
    restore_fails_every: int = 0
    load_error: int = 0
    script: Script = NO_SCRIPT

    @classmethod
    def parse(cls, text: str) -> FakeModel:
        """`key=value,...` as given to --fake; `script` is the path of a script file. Raises LoadError."""
        try:
            pairs = dict(part.split("=", 1) for part in text.split(",") if part)
            script = Script.read(Path(pairs.pop("script"))) if "script" in pairs else NO_SCRIPT
            return replace(cls(), script=script, **{key: int(value) for key, value in pairs.items()})
        except (ValueError, TypeError) as fault:
            raise LoadError(f"--fake {text}: {fault}") from None

    def oracle(self, tokens: Sequence[int], bits: int | None, stages: Recipe = GREEDY) -> int:
        """The token after `tokens`; `bits` is None for greedy."""
        return self.choose(tokens, bits, stages, tokens)

    def choose(self, tokens: Sequence[int], bits: int | None, stages: Recipe, said: Sequence[int]) -> int:
        """As `oracle`, where penalties look at the end of `said`. The heaviest bias over 50 decides alone."""
        seen = array("I", tokens)
        if bits is not None:
            seen.append(bits)
        salt = b"" if bits is None else b"drawn"
        if stages.penalises:
            salt += repr((stages.repeat, stages.frequency, stages.presence, *said[-PENALTY_WINDOW:])).encode()
        chosen = max(stages.bias, key=lambda pair: pair[1], default=(0, 0.0))
        if chosen[1] > 50:
            return chosen[0]
        scripted = self.script.next(tokens) if self.script.lines else None
        if scripted is not None and not (stages.no_end and scripted == self.end):
            return scripted
        return self._choose(seen.tobytes() + salt, ends=not stages.no_end)

    def gap(self, tokens: Sequence[int]) -> float:
        """The logit gap after `tokens`: from 0 up to 16, in steps that single precision holds."""
        digest = blake2b(array("I", tokens).tobytes(), digest_size=2, salt=b"gap").digest()
        return int.from_bytes(digest, "little") / 4096

    def _choose(self, seen: bytes, *, ends: bool) -> int:
        value = int.from_bytes(blake2b(seen, digest_size=8).digest(), "little")
        if ends and self.end_every and value % self.end_every == 0:
            return self.end
        return self.low + (value >> 16) % (self.vocabulary - self.low)
