"""Use cases on a session as a thing kept: SetMeta, SetQos, Purge (spec: wire-facts, 8.11, 8.13, 8.14)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Protocol

import trio

from superfluid.daemon.book import Book
from superfluid.daemon.bus import Bus
from superfluid.daemon.draft import Draft
from superfluid.daemon.engine.room import EngineRoom
from superfluid.daemon.parked_files import ParkedFiles
from superfluid.daemon.sessions.generating import Generating
from superfluid.protocol.codes import PurgeMode
from superfluid.protocol.records import Event, EventBody, Purged, ToolExpired
from superfluid.protocol.refusals import ErasurePending, NotQuiet, ReplyTooLong, SessionPurged
from superfluid.sessions import decide
from superfluid.sessions.heads import Head
from superfluid.sessions.state import SessionState

QUIET_SECONDS = 10.0
"""How long a purge waits for each generation that it cancels."""

LAST_MOMENT = 1.0
"""Seconds that a purge whose client has left has for the KV of what is purged on disk. What the worker holds goes at
the end of its tick; what the disk does not let go of, at the next start."""


class Background(Protocol):
    async def stop(self, session: int) -> None:
        """Work on the session no more; return once nothing is under way."""

    def resume(self, session: int) -> None:
        """The session stays after all."""


class Keeping:
    def __init__(self, book: Book, bus: Bus, room: EngineRoom, generating: Generating, parked: ParkedFiles) -> None:
        self._book = book
        self._bus = bus
        self._room = room
        self._generating = generating
        self._parked = parked
        self.background: Background | None = None
        """what works on sessions unasked, and has to let go of those that are purged"""
        self._over = trio.Event()
        """set when the next purge is over, whatever came of it"""

    async def set_meta(self, session: int, expected_version: int, title: str | None, archived: bool | None) -> int:
        async with self._book.writing(session) as state:
            body = decide.set_meta(state, expected_version, title, archived)
            await self._book.commit_one(state, body)
            return body.version

    async def set_qos(self, session: int, class_: int, batch_invariant: bool) -> Event:
        """Takes effect with the session's next generation (8.14)."""
        body = decide.set_qos(class_, batch_invariant)
        async with self._book.writing(session) as state:
            return await self._book.commit_one(state, body)

    def set_background_rate(self, divisor: int) -> None:
        """Agents and background work take part in one tick of `divisor`, until the daemon ends (8.14)."""
        self._room.schedule.background_divisor = max(divisor, 1)

    async def purge(self, session: int, expected_generation: int, mode: PurgeMode) -> tuple[int, ...]:
        """Erase a session, and with Cascade its descendants, from disk and memory; the ids, the session's last. Also
        one that is damaged, but not where a child needs what is.

        Acknowledged once the texts and tokens are in no file of the log and nowhere in the worker.
        """
        decide.check_purge(self._book.live(session).generation, session, expected_generation)
        while True:
            targets = self._targets((session,), mode)
            if await self._purge_all(targets, (session,), mode):
                return targets

    async def expire(self, heads: Sequence[Head]) -> bool:
        """Purge sessions together, and cut their children loose; False where one of them is in use after all, or is
        not any more what its head says."""
        sessions = tuple(head.id for head in heads)
        return await self._purge_all(sessions, sessions, PurgeMode.REROOT, heads)

    def _targets(self, sessions: tuple[int, ...], mode: PurgeMode) -> tuple[int, ...]:
        if mode is not PurgeMode.CASCADE:
            return sessions
        return tuple(target for session in sessions for target in (*self._book.heads.descendants(session), session))

    async def _purge_all(
        self, targets: tuple[int, ...], sessions: tuple[int, ...], mode: PurgeMode, heads: Sequence[Head] = ()
    ) -> bool:
        """Purge `sessions`; `targets` are they, and what goes with them.

        False where a fork, a generation that was under way, another purge, or with `heads` a record has come between:
        then nothing was done.
        """
        going = self._book.fenced.intersection(targets)
        if not going.isdisjoint(sessions):
            raise SessionPurged(sessions[-1])
        if going:  # descendants that somebody purges by themselves, which may yet fail
            await self._over.wait()
            return False
        self._book.fenced.update(targets)
        try:
            for target in targets:
                if self.background is not None:
                    await self.background.stop(target)
                if not await self._generating.cancel_and_wait(target, QUIET_SECONDS):
                    raise NotQuiet(target)
            async with AsyncExitStack() as turns:
                states = await self._take_turns(turns, targets, even_damaged=not heads)
                if self._targets(sessions, mode) != targets or self._busy(targets):
                    return False
                if any(self._book.heads.any(head.id) is not head for head in heads):
                    return False
                erased = await self._erase(turns, states, targets, mode)
        finally:
            self._book.fenced.difference_update(targets)
            self._over.set()
            self._over = trio.Event()
            if self.background is not None:
                for target in targets:
                    self.background.resume(target)
        for target in targets:
            self._bus.end_session(target, "purged")
        try:
            unparked = await self._erase_kv(targets)
        except trio.Cancelled:
            # Whoever asked has left. They are purged, and nobody can purge them again.
            self._cancel_copies(targets)
            self._room.orders.forget_soon(targets)
            with trio.move_on_after(LAST_MOMENT, shield=True):
                await trio.to_thread.run_sync(self._parked.erase, targets, abandon_on_cancel=True)
            raise
        if not (erased and unparked):
            raise ErasurePending(sessions[-1])
        return True

    async def _erase_kv(self, targets: tuple[int, ...]) -> bool:
        """Return once there is no KV of them; false where the disk would not let go of some."""
        await self._end_copies(targets)
        await self._room.orders.forget(targets)
        # Also what a worker left that is gone, or that ran when the daemon was started with other options.
        return await trio.to_thread.run_sync(self._parked.erase, targets)

    async def _end_copies(self, targets: tuple[int, ...]) -> None:
        """End what runs on copies of them: questions, flash queries. None begins any more."""
        self._cancel_copies(targets)
        for copy in self._book.copies(targets):
            await self._generating.cancel_and_wait(copy, QUIET_SECONDS)

    def _cancel_copies(self, targets: tuple[int, ...]) -> None:
        for copy in self._book.copies(targets):
            if (generation := self._room.in_flight.of_session(copy)) is not None:
                self._room.cancel(generation)

    def _busy(self, targets: tuple[int, ...]) -> bool:
        return any(self._room.in_flight.of_session(target) is not None for target in targets)

    async def _take_turns(
        self, turns: AsyncExitStack, sessions: tuple[int, ...], *, even_damaged: bool = False
    ) -> dict[int, SessionState]:
        writing = partial(self._book.writing, even_fenced=True, even_damaged=even_damaged)
        return {session: await turns.enter_async_context(writing(session)) for session in sorted(sessions)}

    async def _inherited(self, child: int) -> tuple[Event, ...]:
        """What a child has of its parent; none of it where no frame holds that much: the log has it all the same."""
        try:
            own_from = self._book.heads.live(child).own_from
            return await self._book.read(child, 0, own_from, even_fenced=True)
        except ReplyTooLong:
            return ()

    async def _erase(
        self,
        turns: AsyncExitStack,
        states: dict[int, SessionState],
        targets: tuple[int, ...],
        mode: PurgeMode,
    ) -> bool:
        # Children have higher ids than their parents, so these turns too are taken in ascending order; not those of
        # kept requests, but nobody who has a child's turn waits for that of a parent on which nothing is generated.
        parents: dict[int, int] = {}
        if mode is PurgeMode.REROOT:
            parents = {child: target for target in targets for child in self._book.heads.children(target)}
        rerooted = []
        for child in sorted(parents):
            try:
                state = await turns.enter_async_context(self._book.writing(child, even_fenced=True))
            except SessionPurged:
                continue  # by itself, meanwhile
            inherited = await self._inherited(child)
            rerooted.append(Draft(state, (decide.reroot(parents[child], inherited),)))
        purged = [Draft(states[target], _last_words(states[target], mode)) for target in targets]
        return await self._book.purge(purged, rerooted)


def _last_words(state: SessionState, mode: PurgeMode) -> tuple[EventBody, ...]:
    expired = [ToolExpired(call_id, "purged") for call_id, _ in state.open_calls]
    return (*expired, Purged(state.generation + 1, mode))
