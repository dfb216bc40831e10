"""Where KV lies and where a lane's KV comes from: the sequences of the context, host memory and disk under them.

A sequence is *free* (empty), *idle* (it holds a session's tokens and nobody runs on it) or *owned* by one lane.
`acquire` finds the longest usable match for a lane's tokens among all of them, the host copies and what is parked on
disk, and makes a sequence hold it. Nothing here is precious: every failure ends in a cleared sequence and a shorter
match. What is parked is read whole, and found right, before any sequence is touched for it.

Copies between sequences are executed by the next decode. Until then a sequence copied into holds nothing that could
be saved or copied on, and a state restored into either end would be lost or copied instead. What a shift has moved
is decoded before it is read.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from superfluid.engine.backend import Backend
from superfluid.engine.host import HostCopies, HostCopy
from superfluid.engine.matching import WORTH_MOVING, Match, Matcher, serves
from superfluid.engine.parks import Artifact, Parks
from superfluid.engine.radix import strays
from superfluid.engine.ranking import Ranking
from superfluid.engine.saving import Saving
from superfluid.engine.shifting import Shifting
from superfluid.engine.slots import Slot, settle
from superfluid.engine.telling import Telling
from superfluid.protocol.ticks import KvChange


@dataclass(frozen=True, slots=True)
class _Taker:
    """Who takes a sequence: for which session, beside which lanes that keep theirs, and which one it spares."""

    session: int
    ephemeral: bool
    keep: Collection[int]
    spared: Slot | None

    @property
    def besides(self) -> tuple[Slot, ...]:
        return () if self.spared is None else (self.spared,)


class Tiers:
    """All sequences of a backend, the host copies below them, and what is parked below those."""

    def __init__(self, backend: Backend, host_bytes: int, held_pct: int = 0, parks: Parks | None = None) -> None:
        self._backend = backend
        self._traits = backend.traits
        self._slots = [Slot(number) for number in range(backend.traits.sequences)]
        self._host = HostCopies(host_bytes, host_bytes * min(held_pct, 100) // 100)
        self._parks = parks
        self._ranking = Ranking(self._slots)
        self._telling = Telling(self._slots, self._host, parks)
        self._exact = self._traits.window > 0 or self._traits.recurrent
        """whether a state serves only what ends where it does, in general"""
        self._shifting = Shifting(backend, self._slots, self._host)
        self._saving = Saving(backend, self._host, self._shifting, exact=self._exact)
        self._clock = 0

    @property
    def host(self) -> HostCopies:
        return self._host

    def hold(self, sessions: Sequence[int]) -> None:
        """The KV of these sessions goes after that of all others, the first on the list last."""
        self._ranking.hold(sessions)
        self._host.hold(sessions)

    def limit(self, host_bytes: int) -> None:
        """So much may lie in host memory from now on."""
        self._host.limit(host_bytes)

    def shift(self, session: int, start: int, count: int) -> None:
        """Take `count` tokens, from index `start` on, out of the session's idle sequence, where that is possible."""
        self._shifting.shift(session, start, count)

    def of_lane(self, lane: int) -> Slot | None:
        """The sequence that a lane owns, None where it has none (any more)."""
        for slot in self._slots:  # between any two rounds for every lane: a generator would cost twice as much
            if slot.lane == lane:
                return slot
        return None

    # --- taking ---------------------------------------------------------------------------------------------------

    def acquire(
        self,
        lane: int,
        session: int,
        tokens: array[int],
        limit: int,
        keep: Collection[int],
        *,
        ephemeral: bool = False,
    ) -> Slot | None:
        """A sequence for `lane`, holding the longest usable prefix of `tokens`, at most `limit` of them.

        Lanes outside `keep` may lose their sequence for it (its KV is saved like an idle one's). None where every
        sequence is owned by a lane in `keep`. For an `ephemeral` lane, what it copies from stays where it is: None
        also where that is in the only sequence that no such lane owns.
        """
        matches = self._ordered(None if ephemeral else session, tokens, limit, keep)
        spared: Slot | None = None
        if ephemeral and matches and isinstance(matches[0].source, Slot):
            spared = matches[0].source
            if self._ranking.first_to_go(keep, besides=(spared,)) is None:
                if len(self._slots) > 1 or spared.lane in keep:
                    return None
                # Nobody will ever give up another one: by way of host memory.
                self._evict(spared)
                spared = None
                matches = self._ordered(None, tokens, limit, keep)
        taker = _Taker(session, ephemeral, keep, spared)
        for match in matches:
            slot = self._take(match, taker)
            if slot is not None:
                return self._own(slot, lane, taker)
        vacant = self._vacate(taker)
        return None if vacant is None else self._own(vacant, lane, taker)

    def _own(self, slot: Slot, lane: int, taker: _Taker) -> Slot:
        slot.lane, slot.session, slot.ephemeral = lane, taker.session, taker.ephemeral
        self._touch(slot)
        return slot

    def _ordered(self, session: int | None, tokens: array[int], limit: int, keep: Collection[int]) -> list[Match]:
        """What could serve, best first."""
        matcher = Matcher(self._backend, session, tokens, limit)
        matcher.use(self._host.checkpoints)
        matcher.look_at(self._slots)
        matcher.look_up(self._host.index, 2)
        matcher.look_up(self._host.ephemeral, 2)
        if self._parks is not None:
            matcher.look_up(self._parks.index, 3, WORTH_MOVING + 1)

        def order(match: Match) -> tuple[int, int, int]:
            gap = self._ranking.gap(match.source, keep) if isinstance(match.source, Slot) else 0
            return -match.worth, match.cost, gap

        return sorted(matcher.best_first(), key=order)

    def _take(self, match: Match, taker: _Taker) -> Slot | None:
        source, keep = match.source, taker.keep
        if isinstance(source, Artifact):
            return self._fetch(source, match, taker)
        if isinstance(source, HostCopy):
            return self._import(source, match, taker)
        if source.idle and source.session == taker.session and not taker.ephemeral:
            return source if self._cut(source, match) else None
        if match.checkpoint is not None:
            # By way of host memory: what is restored into a sequence that waits for its copy would be overwritten.
            copy = self.copy_of(source)
            return None if copy is None else self._import(copy, match, taker)
        target = self._ranking.first_to_go(keep, besides=(source, *taker.besides))
        takeable = not taker.ephemeral and (source.lane is None or source.lane not in keep)
        if takeable and (target is None or self._dearer(target, source, match.length, keep)):
            self._saving.save(source)
            return source if self._cut(source, match) else None
        if target is None or not self._shifting.execute(source):
            return None
        self._evict(target)
        self._backend.copy(source.number, target.number)
        target.tokens = source.tokens[:]
        target.copied = source.lent = True
        return target if self._cut(target, match) else None

    def _dearer(self, target: Slot, source: Slot, length: int, keep: Collection[int]) -> bool:
        """Whether it costs more to give `target` up than to cut `source`, of which `length` tokens are wanted."""
        return (self._saving.loss(target, 0), self._ranking.gap(target, keep)) > (
            self._saving.loss(source, length),
            self._ranking.gap(source, keep),
        )

    def _fetch(self, artifact: Artifact, match: Match, taker: _Taker) -> Slot | None:
        assert self._parks is not None
        copy = self._parks.read(artifact)
        if copy is None:
            return None
        self._host.add(copy)
        return self._import(copy, match, taker)

    def _import(self, copy: HostCopy, match: Match, taker: _Taker) -> Slot | None:
        slot = self._vacate(taker, restoring=True)
        if slot is None:
            return None
        self._host.touch(copy)
        # llama.cpp goes on decoding after a refused state, and what comes out is garbage.
        whole = self._backend.restore(slot.number, copy.state)
        if not whole or self._backend.last(slot.number) != len(copy.tokens) - 1:
            self._host.drop(copy)
            self._clear(slot)
            return None
        slot.tokens = copy.tokens[:]
        return slot if self._cut(slot, match) else None

    def _cut(self, slot: Slot, match: Match) -> bool:
        """Keep as many tokens of a sequence as the match found it fit for; false leaves it cleared."""
        length, checkpoint = match.length, match.checkpoint
        if length == len(slot.tokens):
            return True
        if checkpoint is None:
            done = self._backend.cut(slot.number, length)
        else:
            self._host.touch(checkpoint)
            done = self._backend.rewind(slot.number, length, checkpoint.state)
        if not done or self._backend.last(slot.number) != length - 1:
            self._clear(slot)
            return False
        del slot.tokens[length:]
        return True

    # --- making room ----------------------------------------------------------------------------------------------

    def _vacate(self, taker: _Taker, *, restoring: bool = False) -> Slot | None:
        slot = self._ranking.first_to_go(taker.keep, besides=taker.besides, restoring=restoring)
        if slot is not None:
            self._evict(slot)
        return slot

    def evict_idle(self) -> bool:
        """Give up an idle sequence for a decode that found no room: whether there was one."""
        slot = self._ranking.idle()
        if slot is None:
            return False
        self._evict(slot)
        return True

    def _evict(self, slot: Slot) -> None:
        self._saving.save(slot)
        self._clear(slot)

    def _clear(self, slot: Slot) -> None:
        self._backend.clear(slot.number)
        slot.empty()

    # --- parking --------------------------------------------------------------------------------------------------

    def residents(self) -> Iterator[Slot | HostCopy]:
        """What could be parked: of every session the best it has, the latest used first."""
        seen: set[int] = set()
        slots = [slot for slot in self._slots if slot.tokens and not slot.copied and not slot.ephemeral]
        everything: list[Slot | HostCopy] = [*sorted(slots, key=lambda slot: -slot.used)]
        everything += reversed(tuple(self._host))
        for kept in everything:
            assert kept.session is not None
            if kept.session not in seen:
                seen.add(kept.session)
                yield kept

    def parked(self, tokens: array[int]) -> bool:
        """Whether an artifact serves all of these tokens, whosever it is."""
        return self._parks is not None and serves(self._parks.index, tokens, exactly=self._exact)

    def size_of(self, kept: Slot | HostCopy) -> int:
        """The number of bytes that its state has."""
        return len(kept.state) if isinstance(kept, HostCopy) else self._backend.state_size(kept.number)

    def copy_of(self, kept: Slot | HostCopy) -> HostCopy | None:
        """Its state in host memory, beside the budget; None where it cannot be saved."""
        return kept if isinstance(kept, HostCopy) else self._saving.copy_of(kept)

    # --- running --------------------------------------------------------------------------------------------------

    def extend(self, slot: Slot, tokens: Iterable[int]) -> None:
        """A decode has put these tokens behind what the sequence holds."""
        slot.tokens.extend(tokens)
        self._touch(slot)

    def settle(self) -> None:
        """A decode has passed, so the pending copies and shifts are executed."""
        settle(self._slots)

    def release(self, lane: int) -> None:
        """The lane is over; what it computed stays as its session's idle sequence, unless it is ephemeral."""
        for copy in self._host.of_lane(lane):
            self._host.drop(copy)
        slot = self.of_lane(lane)
        if slot is None:
            return
        if slot.ephemeral or not slot.tokens:
            self._clear(slot)
            return
        slot.lane = None
        if self._exact:
            self._saving.check_point(slot)

    @property
    def breakable(self) -> bool:
        """Whether a decode may be given up in the middle: its sequences can be cut back to where they were, and no
        shift would be left half done."""
        return not (self._exact or any(slot.shifted for slot in self._slots))

    def cut_back(self, slot: Slot) -> None:
        """A decode was given up: take what it may have left behind out of a sequence."""
        length = len(slot.tokens)
        done = self._backend.cut(slot.number, length) if length else False
        if length and not (done and self._backend.last(slot.number) == length - 1):
            self._clear(slot)
        elif not length:
            self._backend.clear(slot.number)

    def discard(self, lane: int) -> None:
        """The lane's sequence is in no known state: clear it."""
        slot = self.of_lane(lane)
        if slot is not None:
            self._clear(slot)

    def forget(self, sessions: Collection[int]) -> None:
        """Drop every sequence and host copy of these sessions, owned ones included."""
        for slot in self._slots:
            if slot.session in sessions:
                self._clear(slot)
        self._host.forget(sessions)

    def forget_strays(self, sessions: Collection[int], stream: array[int]) -> None:
        """Drop what idle sequences and host copies of these sessions hold of something else than `stream`."""
        for slot in self._slots:
            if slot.idle and slot.session in sessions and strays(slot.tokens, stream):
                self._clear(slot)
        self._host.forget_strays(sessions, stream)

    def _touch(self, slot: Slot) -> None:
        self._clock += 1
        slot.used = self._clock

    # --- books ----------------------------------------------------------------------------------------------------

    def changes(self) -> tuple[KvChange, ...]:
        """The sessions whose KV lies elsewhere, or covers another number of tokens, than when last asked."""
        return self._telling.changes()

    def check(self, lanes: Collection[int]) -> None:
        """Raise AssertionError where something is not conserved. `lanes` are those that exist."""
        owners = [slot.lane for slot in self._slots if slot.lane is not None]
        assert len(owners) == len(set(owners)), "two sequences of one lane"
        assert set(owners) <= set(lanes), "a sequence of a lane that is over"
        for slot in self._slots:
            assert slot.free + slot.idle + (slot.lane is not None) == 1, f"sequence {slot.number} is in no one state"
            assert not (slot.free and slot.tokens), f"sequence {slot.number} is free and holds tokens"
            assert not (slot.idle and not slot.tokens), f"sequence {slot.number} is idle and holds nothing"
            assert not (slot.ephemeral and slot.lane is None), f"sequence {slot.number} outlives an ephemeral lane"
            assert self._backend.last(slot.number) == len(slot.tokens) - 1, f"sequence {slot.number}: wrong length"
        self._host.check()
        assert self._host.lanes <= set(lanes), "a host copy of an ephemeral lane that is over"
        if self._parks is not None:
            self._parks.check()
