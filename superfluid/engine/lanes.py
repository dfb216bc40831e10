"""One running generation, as the worker sees it."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

from superfluid.engine.backend import Backend, Sampler, Traits
from superfluid.engine.sampling import PENALTY_WINDOW, Recipe, draw, recipe
from superfluid.protocol.codes import Fault, Finish
from superfluid.protocol.ticks import LaneOutcome, LaneStart, pack, unpack


@dataclass(slots=True, eq=False)
class Lane:
    """A lane's tokens, what it drew, and how it ended.

    `tokens` are the prompt's and then the drawn ones; the KV of the last drawn one is not computed before the next
    round needs it. `warm` is set when the lane gets its first sequence.
    """

    number: int
    session: int
    tokens: array[int]
    seed: int
    offset: int
    limit: int
    stages: Recipe
    ephemeral: bool = False
    tells_gap: bool = False
    gap: float = 0.0
    sampler: Sampler | None = None
    prompt: int = 0
    warm: int = 0
    started: bool = False
    remaining: int = 0
    prefilled: int = 0
    lost_round: bool = False
    """whether its last round was given up: then its next one is not, whoever runs in between"""
    drawn: list[int] = field(default_factory=list)
    finish: Finish = Finish.OPEN
    fault: Fault = Fault.UNSPECIFIED
    detail: str = ""

    @property
    def open(self) -> bool:
        return self.finish is Finish.OPEN

    @property
    def reusable(self) -> int:
        """How many of its tokens may come from kept KV: a draw needs the last one's logits, so that is decoded."""
        return len(self.tokens) - (1 if self.limit else 0)

    @property
    def draws_made(self) -> int:
        return len(self.tokens) - self.prompt

    def bits(self) -> int:
        """The chance for the next token, by its place in the conversation. Greedy takes none."""
        if self.stages.greedy:
            return 0
        return draw(self.seed, (self.offset + len(self.tokens)) & 0xFFFFFFFFFFFFFFFF)

    def take(self, token: int, is_end: bool) -> None:
        """Append a drawn token, which may be the lane's last."""
        self.tokens.append(token)
        self.drawn.append(token)
        if is_end:
            self.finish = Finish.END_OF_TURN
        elif self.draws_made >= self.limit:
            self.finish = Finish.LENGTH

    def make_sampler(self, backend: Backend) -> None:
        self.sampler = backend.sampler(self.stages, self.tokens[-PENALTY_WINDOW:])

    def fail(self, fault: Fault, detail: str) -> None:
        self.finish, self.fault, self.detail = Finish.ERROR, fault, detail

    def outcome(self) -> LaneOutcome:
        """What happened since the last call, for the daemon; starts counting anew."""
        outcome = LaneOutcome(
            lane=self.number,
            drawn=pack(self.drawn),
            warm=self.warm,
            prefilled=self.prefilled,
            remaining=self.remaining,
            finish=self.finish,
            fault=self.fault,
            detail=self.detail,
            gap=self.gap,
        )
        self.drawn, self.prefilled = [], 0
        return outcome

    def close(self) -> None:
        if self.sampler is not None:
            self.sampler.close()
            self.sampler = None


def open_lane(start: LaneStart, traits: Traits) -> Lane:
    """The lane of a `LaneStart`, without a sampler. What cannot run is a lane that has failed already."""
    try:
        tokens = unpack(start.tokens)
    except ValueError:
        tokens = array("I")
    lane = Lane(
        number=start.lane,
        session=start.session,
        tokens=tokens,
        seed=start.params.seed,
        offset=start.offset,
        limit=start.limit,
        stages=recipe(start.params, start.options),
        ephemeral=start.options.ephemeral,
        tells_gap=start.options.gap,
        prompt=len(tokens),
        remaining=len(tokens),
    )
    if not tokens:
        lane.fail(Fault.BAD_TOKEN, "the lane names no tokens")
    elif (highest := max(tokens)) >= traits.vocabulary:
        lane.fail(Fault.BAD_TOKEN, f"token {highest} is outside the vocabulary of {traits.vocabulary}")
    elif len(tokens) > traits.context:
        lane.fail(Fault.OUT_OF_MEMORY, f"{len(tokens)} tokens do not fit the context of {traits.context}")
    return lane


def unknown_lane(number: int) -> LaneOutcome:
    """The outcome of a lane that a tick wants to run and nobody started."""
    return LaneOutcome(number, b"", 0, 0, 0, Finish.ERROR, Fault.INTERNAL, f"the worker knows no lane {number}")
