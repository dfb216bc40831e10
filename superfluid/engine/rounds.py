"""A tick, round by round: each round is one decode over a row of every running lane and a bounded piece of prompts.

A lane with one token left to compute takes one row, be it a drawn token or the last of a prompt: so a generation
that was cut and is continued decodes what the uncut one would have. Longer rests share the round's `chunk`, in the
order of the tick's `run`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from typing import Protocol

from superfluid.engine.announcing import Announcing
from superfluid.engine.backend import Backend, Decoded, Stretch
from superfluid.engine.lanes import Lane, open_lane, unknown_lane
from superfluid.engine.slots import Slot
from superfluid.engine.threads import Governor
from superfluid.engine.tiers import Tiers
from superfluid.protocol.codes import Fault, Finish
from superfluid.protocol.ticks import Drawn, LaneOutcome, Outcome, Tick

BREAKABLE = 64
"""Prompt tokens from which on a round may be given up in the middle: a tenth of a second or more on a processor."""

LONG = 0.5
"""Seconds from which on the round after is taken to be long as well, and is asked for signs of life."""
LATELY = 10.0
"""Seconds after which nothing is known of how long a round takes: its weights may have left memory."""


class Stop(Protocol):
    def __call__(self, number: int, at_once: bool = False) -> bool:
        """Whether tick `number` is to end, and with `at_once`, whether in the middle of a round."""


@dataclass(frozen=True, slots=True)
class _Share:
    """A lane's part of a round."""

    lane: Lane
    slot: Slot
    stretch: Stretch


@dataclass(slots=True)
class _Tally:
    """What a tick has done so far, as `Outcome` reports it."""

    rounds: int = 0
    prefill_us: int = 0
    prefill_tokens: int = 0
    decode_tokens: int = 0


class Rounds:
    """Runs ticks on one backend. `announce` takes what rounds drew; `stop` is asked between rounds, and in long
    ones, whether the tick is to end; `alive` is called in long ones. All may raise, which ends everything."""

    def __init__(
        self,
        backend: Backend,
        tiers: Tiers,
        governor: Governor,
        announce: Callable[[Drawn], None],
        stop: Stop,
        alive: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._backend = backend
        self._tiers = tiers
        self._governor = governor
        self._announcing = Announcing(announce, clock)
        self._stop = stop
        self._alive = alive
        self._clock = clock
        self._lanes: dict[int, Lane] = {}
        self._threads = 0
        self._row_seconds = 0.0
        """what a token took in the last long round; 0 before there was one"""
        self._ended, self._took = float("-inf"), 0.0
        """when the last round ended, and what it took"""

    @property
    def lanes(self) -> frozenset[int]:
        """The lanes that exist, running or waiting."""
        return frozenset(self._lanes)

    def run(self, tick: Tick) -> Outcome:
        """Execute one tick and say what became of it."""
        began = self._clock()
        for start in tick.starts:
            self._open(open_lane(start, self._backend.traits))
        for number in tick.ends:
            self._close(number)
        tally = _Tally()
        running = [self._lanes[number] for number in dict.fromkeys(tick.run) if number in self._lanes]
        outcomes: dict[int, LaneOutcome] = {}
        self._sweep(running, outcomes)
        while running and tally.rounds < max(1, tick.rounds):
            if tally.rounds and (self._clock() - began) * 1000 >= tick.budget_ms:
                break
            self._announcing.tell()
            progressed = self._round(tick, running, tally)
            # A lane that is over leaves its place to another one, and who asked for it waits for the end of the tick.
            if self._sweep(running, outcomes) or not progressed or self._stop(tick.number):
                break
        for lane in running:
            outcomes[lane.number] = lane.outcome()
        self._announcing.told()
        return Outcome(
            tick=tick.number,
            lanes=tuple(outcomes.get(number) or unknown_lane(number) for number in dict.fromkeys(tick.run)),
            rounds=tally.rounds,
            elapsed_us=round((self._clock() - began) * 1e6),
            prefill_us=tally.prefill_us,
            prefill_tokens=tally.prefill_tokens,
            decode_tokens=tally.decode_tokens,
            threads=self._threads or self._governor.threads,
            kv=self._tiers.changes(),
        )

    def forget(self, sessions: frozenset[int]) -> None:
        """End the lanes of these sessions and drop all their KV."""
        for lane in tuple(self._lanes.values()):
            if lane.session in sessions:
                self._close(lane.number)
        self._tiers.forget(sessions)

    def close(self) -> None:
        for number in tuple(self._lanes):
            self._close(number)

    def check(self) -> None:
        """Raise AssertionError where sequences, host copies and lanes do not fit together."""
        self._tiers.check(self._lanes)

    # --- lanes ----------------------------------------------------------------------------------------------------

    def _open(self, lane: Lane) -> None:
        if lane.number in self._lanes:
            self._close(lane.number)
            lane.fail(Fault.INTERNAL, f"lane {lane.number} was started twice")
        if lane.open:
            lane.make_sampler(self._backend)
        self._lanes[lane.number] = lane

    def _close(self, number: int) -> None:
        lane = self._lanes.pop(number, None)
        if lane is not None:
            lane.close()
            self._tiers.release(number)

    def _sweep(self, running: list[Lane], outcomes: dict[int, LaneOutcome]) -> bool:
        """Take the lanes that are over out of `running`: whether there were any."""
        over = [lane for lane in running if not lane.open]
        for lane in over:
            running.remove(lane)
            outcomes[lane.number] = lane.outcome()
            self._close(lane.number)
        return bool(over)

    def _seated(self, running: Sequence[Lane]) -> list[tuple[Lane, Slot]]:
        """The open lanes with their sequences, which are given to those that have none as far as they go."""
        slots = [self._tiers.of_lane(lane.number) for lane in running]
        if None in slots:
            waiting = [lane for lane, slot in zip(running, slots, strict=True) if slot is None]
            self._seat(waiting, keep={lane.number for lane in running})
            slots = [self._tiers.of_lane(lane.number) for lane in running]
        return [(lane, slot) for lane, slot in zip(running, slots, strict=True) if slot is not None and lane.open]

    def _seat(self, waiting: Sequence[Lane], keep: Set[int]) -> None:
        for lane in waiting:
            slot = self._tiers.acquire(
                lane.number, lane.session, lane.tokens, lane.reusable, keep, ephemeral=lane.ephemeral
            )
            if slot is None:
                return
            lane.remaining = max(0, lane.prompt - len(slot.tokens))
            if not lane.started:
                lane.started, lane.warm = True, len(slot.tokens)
            if not lane.limit and not lane.remaining:
                lane.finish = Finish.LENGTH

    # --- one round ------------------------------------------------------------------------------------------------

    def _round(self, tick: Tick, running: Sequence[Lane], tally: _Tally) -> bool:
        """One decode and its draws. False where no lane has anything to compute."""
        shares = self._shares(self._seated(running), tick.chunk)
        if not shares:
            return False
        threads = self._governor.threads
        if threads != self._threads:
            self._backend.set_threads(threads)
            self._threads = threads
        rows = prompt_rows = 0
        for share in shares:
            count = len(share.stretch.tokens)
            rows += count
            prompt_rows += count if count > 1 else 0
        began = self._clock()
        drawn: list[tuple[int, int]] = []
        done = self._compute(shares, drawn, stop=self._question(tick, shares, rows, began))
        for share in shares:
            share.lane.lost_round = not done
        self._ended = ended = self._clock()
        self._took = ended - began
        if not done:
            return True
        tally.rounds += 1
        tally.prefill_tokens += prompt_rows
        tally.decode_tokens += rows - prompt_rows
        if rows >= BREAKABLE:
            self._row_seconds = (ended - began) / rows
        if prompt_rows:
            tally.prefill_us += round((ended - began) * 1e6)
        if drawn:
            first = any(share.lane.draws_made == 1 for share in shares if share.stretch.draws)
            self._announcing.drew(tick.number, drawn, first=first)
        self._governor.after_round(rows, ended - began, ended)
        return True

    def _shares(self, seated: Sequence[tuple[Lane, Slot]], chunk: int) -> list[_Share]:
        shares = []
        traits = self._backend.traits
        # llama.cpp takes the first token of a prompt's part into the pass of those that decode, and what is left for
        # the prompt's own pass had better be a round number.
        joined = any(len(lane.tokens) - len(slot.tokens) == 1 for lane, slot in seated)
        # A batch holds a row of every sequence beside the prompts' part, so that a chunk never starves a lane.
        room = min(max(1, chunk) + joined, traits.batch - traits.sequences)
        for lane, slot in seated:
            at = len(slot.tokens)
            if at >= traits.context:
                lane.fail(Fault.OUT_OF_MEMORY, f"the context of {traits.context} tokens is full")
                continue
            rest = len(lane.tokens) - at
            count = 1 if rest == 1 else min(rest, room)
            if not count:
                continue
            if rest > 1:
                room -= count
            draws = count == rest and lane.limit > 0
            shares.append(_Share(lane, slot, Stretch(slot.number, at, lane.tokens[at : at + count], draws)))
        # llama.cpp takes sequences into one pass only as long as each number is the one before it plus one.
        shares.sort(key=lambda share: share.slot.number)
        return shares

    def _question(self, tick: Tick, shares: Sequence[_Share], rows: int, began: float) -> Callable[[], bool] | None:
        """What is asked in the middle of a round: it gives a sign of life, and says whether to give the round up.
        None for one that is over at once, as far as is known: questions would cost it a tenth of its speed.

        Past half of what it should take, to finish it costs the newcomer less than what would be lost."""
        if rows < BREAKABLE and self._took < LONG and began - self._ended < LATELY:
            return None
        # Or those who come one after another would stop a prompt for ever.
        repeated = any(share.lane.lost_round for share in shares if len(share.stretch.tokens) > 1)
        breakable = rows >= BREAKABLE and not repeated and self._tiers.breakable
        half = rows * self._row_seconds / 2 or float("inf")

        def asked() -> bool:
            self._alive()
            return breakable and self._clock() - began < half and self._stop(tick.number, at_once=True)

        return asked

    def _compute(
        self,
        shares: Sequence[_Share],
        drawn: list[tuple[int, int]],
        *,
        may_evict: bool = True,
        stop: Callable[[], bool] | None = None,
    ) -> bool:
        """Decode, draw, and settle what came of it. Where there is no room, an idle sequence goes; then lanes are
        tried alone, and a lane's tokens by halves; one that fits no token fails. False where `stop` made it give up:
        then all is as before."""
        result = self._backend.decode([share.stretch for share in shares], stop)
        if result is Decoded.STOPPED:
            self._tiers.settle()
            for share in shares:
                self._tiers.cut_back(share.slot)
            return False
        if result is Decoded.DONE:
            self._tiers.settle()
            for index, share in enumerate(shares):
                self._advance(index, share, drawn)
        elif result is Decoded.NO_ROOM and may_evict and self._tiers.evict_idle():
            self._compute(shares, drawn, may_evict=False)
        elif result is Decoded.NO_ROOM and (smaller := _smaller(shares)):
            for share in smaller:
                if share.lane.open:
                    self._compute([share], drawn, may_evict=False)
        else:
            for share in shares:
                self._tiers.discard(share.lane.number)
                if result is Decoded.NO_ROOM:
                    tokens = share.stretch.start + len(share.stretch.tokens)
                    share.lane.fail(Fault.OUT_OF_MEMORY, f"no room for the KV of {tokens} tokens")
                else:
                    share.lane.fail(Fault.INTERNAL, "the model failed to decode a batch")
        return True

    def _advance(self, index: int, share: _Share, drawn: list[tuple[int, int]]) -> None:
        lane, slot = share.lane, share.slot
        before = max(0, lane.prompt - len(slot.tokens))
        self._tiers.extend(slot, share.stretch.tokens)
        lane.remaining = max(0, lane.prompt - len(slot.tokens))
        lane.prefilled += before - lane.remaining
        if share.stretch.draws:
            assert lane.sampler is not None
            if lane.tells_gap and not lane.draws_made:
                lane.gap = self._backend.gap(index)
            token = lane.sampler.draw(index, lane.bits())
            lane.take(token, self._backend.is_end(token))
            drawn.append((lane.number, token))
        elif not lane.limit and not lane.remaining:
            lane.finish = Finish.LENGTH


def _smaller(shares: Sequence[_Share]) -> list[_Share]:
    """The shares one by one; of a single one, its halves; nothing where it is one token."""
    if len(shares) > 1:
        return list(shares)
    (share,) = shares
    stretch, half = share.stretch, len(share.stretch.tokens) // 2
    if not half:
        return []
    first = Stretch(stretch.sequence, stretch.start, stretch.tokens[:half], False)
    second = Stretch(stretch.sequence, stretch.start + half, stretch.tokens[half:], stretch.draws)
    return [_Share(share.lane, share.slot, first), _Share(share.lane, share.slot, second)]
