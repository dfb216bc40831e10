"""From what lanes drew to committed records, delivered: one transaction a tick, in order."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

import trio

from superfluid.daemon.book import Book
from superfluid.daemon.draft import Draft
from superfluid.daemon.engine.generation import Cut, Generation
from superfluid.daemon.engine.in_flight import InFlight
from superfluid.protocol.codes import Finish
from superfluid.protocol.records import Event, EventBody, ToolUse
from superfluid.protocol.refusals import GenerationFailed, ProtocolRefusal, Refusal
from superfluid.scheduler.planning import Settled
from superfluid.sessions import tooling
from superfluid.sessions.state import SessionState

_LOG = logging.getLogger("superfluid.committing")


@dataclass(frozen=True, slots=True)
class Piece:
    """What one tick means for one generation: what there is to commit, and whether it is the last."""

    generation: Generation
    cut: Cut
    finish: Finish
    refusal: Refusal | None = None


class Committer:
    """Commits pieces and tells their generations. `cancel` ends a lane that nobody wants any more; `lost` is told of
    generations that ended because nothing of theirs could be kept: their KV is ahead of the log. Tool calls get a
    lease of `lease_ms`, none where that is 0."""

    def __init__(
        self,
        book: Book,
        in_flight: InFlight,
        cancel: Callable[[Generation], None],
        lost: Callable[[Sequence[Generation], Refusal], None],
        lease_ms: int,
    ) -> None:
        self._book = book
        self._in_flight = in_flight
        self._cancel = cancel
        self._lost = lost
        self._lease_ms = lease_ms

    def settled(self, settled: Settled) -> Piece | None:
        """The piece of a tick's outcome; None for a generation that is gone already."""
        refusal = None
        if settled.finish is Finish.ERROR:
            refusal = GenerationFailed(f"engine lane fault (code {settled.fault}): {settled.detail}")
        return self.piece(settled.job.lane, settled.finish, refusal)

    def piece(self, lane: int, finish: Finish, refusal: Refusal | None = None) -> Piece | None:
        """What a lane drew since its last piece. To be called before its next tick begins."""
        generation = self._in_flight.of_lane(lane)
        return None if generation is None else Piece(generation, generation.cut(finish), finish, refusal)

    async def run(self, batches: trio.MemoryReceiveChannel[tuple[Piece, ...]]) -> None:
        """Commit batch after batch; each overlaps the tick after it."""
        async with batches:
            async for batch in batches:
                await self._commit_batch([piece for piece in batch if not piece.generation.ended.is_set()])

    async def _commit_batch(self, pieces: Sequence[Piece]) -> None:
        async with AsyncExitStack() as turns:
            states = await self._take_turns(turns, pieces)
            batch = [piece for piece in pieces if piece.generation.session in states]
            writing = [piece for piece in batch if piece.cut.bodies]
            try:
                events = await self._commit_records(writing, states)
            except Exception as fault:
                self._lose(batch, self._reason(fault, states))
                return
        for piece, committed in zip(writing, events, strict=True):
            if not piece.generation.committed(committed) and piece.finish is Finish.OPEN:
                self._cancel(piece.generation)  # whoever asked reads far too slowly
        for piece in batch:
            if piece.refusal is not None:
                self._in_flight.drop(piece.generation, piece.refusal)
            elif piece.finish is not Finish.OPEN:
                piece.generation.end(piece.finish)
                self._in_flight.release(piece.generation)

    async def _take_turns(self, turns: AsyncExitStack, pieces: Sequence[Piece]) -> dict[int, SessionState]:
        """The states of their sessions. One that cannot be had, damaged or gone, costs only its own generation."""
        states: dict[int, SessionState] = {}
        for piece in sorted(pieces, key=lambda piece: piece.generation.session):
            session = piece.generation.session
            try:
                states[session] = await turns.enter_async_context(self._book.writing(session, even_fenced=True))
            except Exception as fault:
                self._lose([piece], self._reason(fault, [session]))
        return states

    async def _commit_records(
        self, pieces: Sequence[Piece], states: dict[int, SessionState]
    ) -> tuple[tuple[Event, ...], ...]:
        drafts = [self._draft(states[piece.generation.session], piece.cut.bodies) for piece in pieces]
        return await self._book.commit(drafts) if drafts else ()

    def _draft(self, state: SessionState, bodies: Sequence[EventBody]) -> Draft:
        """With the lease of each call right after it."""
        leased: list[EventBody] = []
        for body in bodies:
            call_id = self._book.next_event(state) + len(leased)
            leased.append(body)
            if isinstance(body, ToolUse):
                lease = tooling.lease(call_id, self._lease_ms, self._book.now_ms())
                leased += [] if lease is None else [lease]
        return Draft(state, tuple(leased))

    def _reason(self, fault: Exception, sessions: Iterable[int]) -> Refusal:
        """What to say of a commit that failed. A bug of ours costs these generations, not the daemon; the log says
        what is true of their sessions."""
        if isinstance(fault, Refusal):
            return fault
        _LOG.error("a commit failed", exc_info=fault)
        self._book.doubt(sessions)
        return ProtocolRefusal("internal error; the daemon's log says what happened")

    def _lose(self, pieces: Sequence[Piece], refusal: Refusal) -> None:
        for piece in pieces:
            self._cancel(piece.generation)
            self._in_flight.drop(piece.generation, GenerationFailed(str(refusal)))
        self._lost([piece.generation for piece in pieces], refusal)
