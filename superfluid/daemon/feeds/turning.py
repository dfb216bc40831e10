"""Use cases of chat turns on a session: the whole conversation is sent, and only what is new of it is computed.

The conversation is matched message by message against what the session holds, stepping over data; see `resending`
(spec: streaming-facts, sections 1.4 and 7; decisions 16 to 18).
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from superfluid.daemon.book import Book
from superfluid.daemon.bus import Bus
from superfluid.daemon.engine.generation import Generation
from superfluid.daemon.engine.room import EngineRoom
from superfluid.daemon.feeds.evaluating import Evaluating
from superfluid.daemon.replies.conversing import Ask, Reply, Turn
from superfluid.daemon.replies.cutting import Cutting
from superfluid.daemon.replies.resuming import Draught
from superfluid.daemon.served import ServedModel
from superfluid.daemon.sessions.generating import GREEDY, Generating
from superfluid.protocol.codes import Finish
from superfluid.protocol.feed_responses import Warmed
from superfluid.protocol.records import GenerationFingerprint, GenerationPrompt
from superfluid.protocol.refusals import (
    EmptySession,
    PermissionPending,
    ProtocolRefusal,
    SessionBusy,
    ShuttingDown,
)
from superfluid.protocol.ticks import pack
from superfluid.sessions import decide
from superfluid.sessions.state import SessionState

COMPLETED = (Finish.END_OF_TURN, Finish.LENGTH, Finish.GRAMMAR)
"""How a turn ends that is counted."""


class Turning:
    def __init__(
        self,
        book: Book,
        bus: Bus,
        room: EngineRoom,
        generating: Generating,
        model: ServedModel,
        evaluating: Evaluating,
    ) -> None:
        bus.ends.append(self._forget)
        self._book = book
        self._room = room
        self._generating = generating
        self._model = model
        self._cutting = Cutting(book, model)
        self._evaluating = evaluating
        self._warming: dict[int, trio.CancelScope] = {}
        self._warm: dict[int, bytes] = {}
        """digests of the conversations that were computed last"""

    @asynccontextmanager
    async def reply(self, session: int, ask: Ask) -> AsyncIterator[Reply]:
        """The next turn of a session; `ask.turns` is the whole conversation. It and the reply become the session's.

        Leaving the block early cancels; what was drawn stays. Raises SessionBusy beside another foreground request,
        OverWindow and ProtocolRefusal, before anything is written.
        """
        decide.check_params(ask.params)
        self._book.live(session)
        with self._room.in_flight.claim(session):
            self._interrupt(session)
            try:
                generation, prompt_tokens = await self._start(session, ask)
                reply = Reply(generation, prompt_tokens, ask.stops, self._generating.abandon)
                try:
                    yield reply
                finally:
                    await self._generating.see_off(generation)
                    if reply.stop is not None and generation.ended.is_set():
                        await self._cutting.reply(session, reply.text)
                    if reply.finish in COMPLETED:
                        self._room.metrics.session_turns += 1
                        self._room.metrics.session_cached_tokens += reply.cached_tokens
            finally:
                self._evaluating.settled(session)

    def _interrupt(self, session: int) -> None:
        """Background work on the session gives way."""
        self._evaluating.pause(session)
        self._warm.pop(session, None)
        if (scope := self._warming.get(session)) is not None:
            scope.cancel()

    async def _start(self, session: int, ask: Ask) -> tuple[Generation, int]:
        async with self._book.writing(session) as state:
            if self._generating.closing:
                raise ShuttingDown
            if state.permissions:
                raise PermissionPending(session, state.permissions)
            draught = await self._draught(state, ask.turns)
            after = draught.state
            if (fingerprint := self._model.fingerprint(ask.params)) != state.fingerprint:
                draught.put(GenerationFingerprint(fingerprint))
            if opener := self._model.opener(after):
                draught.put(GenerationPrompt(opener))
            self._generating.check_room(len(after.tokens))
            # With its place kept: what is refused for a full queue leaves nothing.
            with self._room.schedule.reserve():
                if draught.bodies:
                    await self._book.commit_one(state, *draught.bodies)
            limit = self._model.window if ask.max_tokens is None else ask.max_tokens
            generation = self._generating.admit(state, limit, ask.qos, ask.options, live=True, params=ask.params)
            return generation, len(state.tokens)

    async def _draught(self, state: SessionState, turns: tuple[Turn, ...] | None) -> Draught:
        if turns is None:
            raise ProtocolRefusal("a turn on a session takes messages")
        draught = Draught(self._book, self._model, state)
        await draught.resume(turns)
        if not draught.state.tokens:
            raise EmptySession(state.id)
        return draught

    # --- warm turns -----------------------------------------------------------------------------------------------

    async def warm(self, session: int, turns: tuple[Turn, ...]) -> Warmed:
        """Compute what the next turn would send, in the background; nothing is drawn and nothing written.

        A turn, and a newer warming, cancel it; what was computed is kept. Raises SessionBusy while a turn runs, and
        as `reply`.
        """
        self._book.live(session)
        in_flight = self._room.in_flight
        if in_flight.busy(session):
            raise SessionBusy(session)
        state = await self._book.now(session)
        wanted = (await self._draught(state, turns)).state
        length, version = len(wanted.tokens), state.feed.version
        self._generating.check_room(length)
        if in_flight.busy(session) or self._generating.has_lost(session, state):
            return Warmed("cancelled", length, 0, 0, version)
        if self._holds(state, wanted):
            return Warmed("covered", length, length, 0, version)
        generation, cancelled = await self._compute(session, wanted)
        if generation.refusal is not None:
            raise generation.refusal
        job = generation.job
        self._room.metrics.warm_turns += 1
        self._room.metrics.warmed_tokens += max(0, job.computed - job.warm)
        return Warmed("cancelled" if cancelled else "warmed", length, min(job.warm, length), 0, version)

    async def _compute(self, session: int, wanted: SessionState) -> tuple[Generation, bool]:
        """Compute `wanted` as the session's KV; whether it was cancelled before its end."""
        if (older := self._warming.get(session)) is not None:
            older.cancel()
        self._warm.pop(session, None)
        with self._book.passing(GREEDY, like=wanted) as asked:
            generation = self._generating.admit_background(asked, 0, kv_session=session)
            scope = self._warming[session] = trio.CancelScope()
            try:
                with scope:
                    await generation.ended.wait()
            finally:
                if self._warming.get(session) is scope:
                    del self._warming[session]
                await self._generating.see_off(generation)
        summary = generation.summary
        cancelled = scope.cancelled_caught or summary is None or summary.finish == Finish.CANCELLED
        if not cancelled:
            self._warm[session] = _digest(wanted)
        return generation, cancelled

    def _forget(self, session: int | None) -> None:
        if session is not None:
            self._warm.pop(session, None)

    def _holds(self, state: SessionState, wanted: SessionState) -> bool:
        """Whether the session's KV is of all of `wanted`: warmed before, or on its own input."""
        length = len(wanted.tokens)
        if not self._room.kv.covers(state.id, length):
            return False
        if (digest := self._warm.get(state.id)) is not None:
            return digest == _digest(wanted)
        return length <= len(state.tokens) and state.tokens[:length] == wanted.tokens


def _digest(state: SessionState) -> bytes:
    return hashlib.blake2b(pack(state.tokens), digest_size=16).digest()
