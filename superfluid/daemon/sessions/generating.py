"""Use cases around a reply: Generate and Cancel (spec: wire-facts, 8.8 and 8.10)."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from superfluid.daemon.book import Book
from superfluid.daemon.engine.generation import Generation, Summary
from superfluid.daemon.engine.in_flight import Claim
from superfluid.daemon.engine.room import EngineRoom
from superfluid.daemon.served import ServedModel
from superfluid.model.channels import Channels
from superfluid.protocol.codes import Finish, Qos
from superfluid.protocol.records import EventBody, GenerationFingerprint, GenerationPrompt, GenParams
from superfluid.protocol.refusals import (
    EmptySession,
    NothingInFlight,
    OverWindow,
    QueueFull,
    SessionPurged,
    ShuttingDown,
)
from superfluid.protocol.ticks import LaneOptions, pack
from superfluid.scheduler.job import Job
from superfluid.sessions import tooling
from superfluid.sessions.state import SessionState

_LOG = logging.getLogger("superfluid.generating")

LAST_TICK = 5.0
"""Seconds that a session whose client has left stays for the tick under way; one takes a quarter of a second."""

GREEDY = GenParams(temperature=0.0, top_p=1.0)
"""How background work draws, and where nothing is drawn at all."""

PAUSE = 1.0
"""Seconds before background work tries a full queue again."""

WAVES = 2
"""Background generations of one kind under way for each lane: more only fill the queue, in which people wait."""


class Generating:
    """Starts generations and ends them. `closing` refuses new ones while the daemon drains.

    With `leases`, tool calls whose lease is over end before anything is drawn.
    """

    def __init__(self, book: Book, room: EngineRoom, model: ServedModel, *, leases: bool = False) -> None:
        self._book = book
        self._room = room
        self._model = model
        self._leases = leases
        self.closing = False

    @asynccontextmanager
    async def generate(self, session: int, max_tokens: int) -> AsyncIterator[Generation | Summary]:
        """The next turn of a session, or the rest of an open one.

        Gives a `Generation` to follow, or a `Summary` at once where there is nothing to draw. Leaving the block
        before the end cancels. Raises what the checks of 8.8 refuse.
        """
        started = await self._start(session, max_tokens)
        if started is None:
            yield Summary((), 0, Finish.OPEN, 0)
            return
        try:
            yield started
        finally:
            self.abandon(started)

    async def _start(self, session: int, max_tokens: int) -> Generation | None:
        async with self._book.writing(session) as state:
            if self.closing:
                raise ShuttingDown
            if self._leases and (expired := tooling.expired(state, self._book.now_ms())):
                await self._book.commit_one(state, *expired)
            tooling.check_permissions(state)
            if open_calls := len(state.open_calls):
                _LOG.warning("session %s generates with %s tool calls open", session, open_calls)
            if not state.tokens:
                raise EmptySession(session)
            self.check_room(len(state.tokens))
            if max_tokens == 0:
                return None
            # Busy from here on: no turn or question may begin while the opener is being committed.
            with self._room.in_flight.claim(session):
                opening = self._opening(state)
                if opening:
                    # With its place kept: what was refused for a full queue must not have left an opener.
                    with self._room.schedule.reserve():
                        await self._book.commit_one(state, *opening)
                return self.admit(state, max_tokens, state.qos, channels=self._model.channels)

    def _opening(self, state: SessionState) -> list[EventBody]:
        """The records that come before the first draw. An opener that does not fit is not committed."""
        bodies: list[EventBody] = []
        fingerprint = self._model.fingerprint(state.params)
        if fingerprint != state.fingerprint:
            bodies.append(GenerationFingerprint(fingerprint))
        opener = self._model.opener(state)
        self.check_room(len(state.tokens) + len(opener))
        if opener:
            bodies.append(GenerationPrompt(opener))
        return bodies

    def check_room(self, tokens: int) -> None:
        """Whether so many tokens leave room for a reply. Raises OverWindow."""
        if tokens >= self._model.window:
            raise OverWindow(tokens, self._model.window)

    def admit(
        self,
        state: SessionState,
        max_tokens: int,
        qos: int,
        options: LaneOptions = LaneOptions(),  # noqa: B008 - frozen
        *,
        channels: Channels | None = None,
        live: bool = False,
        ends: bool = False,
        params: GenParams | None = None,
        kv_session: int | None = None,
    ) -> Generation:
        """Queue a generation on `state` as it stands; the caller has checked that there is room.

        The reply is cut into `channels`; without, what looks like a tool call is text. With `live`, its text is
        followed piece by piece and its events by nobody; with `ends`, whoever asked will not continue it where it is
        cut. It draws with `params` instead of the session's; the KV that it computes is that of `kv_session` instead.

        Raises QueueFull, SessionPurged for a copy of what is gone, and ShuttingDown: a drain that has begun does not
        look again for who comes late.
        """
        if self.closing:
            raise ShuttingDown
        self._book.check_copy(state)
        passing = self._book.is_passing(state)
        job = Job(
            lane=self._room.in_flight.next_lane(),
            session=state.id,
            qos=qos,
            tokens=pack(state.tokens),
            params=state.params if params is None else params,
            offset=state.ever - len(state.tokens),
            limit=max(0, min(max_tokens, self._model.window - len(state.tokens))),
            arrived=trio.current_time(),
            options=options,
            batch_invariant=state.batch_invariant,
            passing=passing,
            kv_session=kv_session,
        )
        splitter = self._model.splitter(state, channels or self._model.channels.without_calls())
        generation = Generation(job, splitter, self._room.metrics, live=live, ends=ends or passing)
        self._room.submit(generation)
        if live:
            generation.deltas.close()
        if (claim := self._room.in_flight.claim_of(state.id)) is not None:
            self.draw_for(claim, generation)
        return generation

    def draw_for(self, claim: Claim, generation: Generation) -> None:
        """A foreground request draws its reply: whoever cancels it, ends that; also who did so a moment ago."""
        claim.generation = generation
        if claim.cancelled:
            self.abandon(generation)

    def background_places(self, share: int) -> trio.Semaphore:
        """Places for background generations of one kind, which take at most a `share`-th of the queue."""
        schedule = self._room.schedule
        return trio.Semaphore(max(1, min(WAVES * schedule.lanes, schedule.max_waiting // share)))

    def admit_background(
        self,
        state: SessionState,
        max_tokens: int,
        options: LaneOptions = LaneOptions(),  # noqa: B008 - frozen
        *,
        kv_session: int | None = None,
    ) -> Generation:
        """As `admit`, of background work whose events nobody follows."""
        generation = self.admit(state, max_tokens, Qos.BACKGROUND, options, kv_session=kv_session)
        generation.deltas.close()
        return generation

    async def admit_in_time(
        self,
        state: SessionState,
        max_tokens: int,
        options: LaneOptions = LaneOptions(),  # noqa: B008 - frozen
        *,
        kv_session: int | None = None,
    ) -> Generation | None:
        """As `admit_background`, once the queue has a place for it; None where nobody needs it any more, nor may KV
        of data come back that have left `kv_session` since it was in `state`."""
        while True:
            try:
                if kv_session is not None and self.has_lost(kv_session, state):
                    return None
                return self.admit_background(state, max_tokens, options, kv_session=kv_session)
            except QueueFull:
                await trio.sleep(PAUSE)
            except (SessionPurged, ShuttingDown):
                return None

    def has_lost(self, session: int, state: SessionState) -> bool:
        """Whether data have left the session since it was in `state`. They may be erased by now, and KV of `state`
        would outlive that. Raises SessionPurged."""
        return self._book.live(session).feed.evicted > state.feed.evicted

    async def see_off(self, generation: Generation) -> None:
        """Nobody waits for it any more: cancel what has not ended, and return once its lane is gone.

        What the tick under way draws still belongs to its session, which has to stay until then, `LAST_TICK` seconds
        at the most, also where the caller is cancelled.
        """
        self.abandon(generation)
        with trio.move_on_after(LAST_TICK, shield=True):
            await generation.ended.wait()

    def abandon(self, generation: Generation) -> None:
        """Nobody waits for it any more: cancel what has not ended."""
        if not generation.ended.is_set():
            self._room.cancel(generation)

    def cancel(self, session: int) -> None:
        """End what the session generates or is asked, queued or running or about to be. Raises NothingInFlight."""
        self._book.live(session)
        in_flight = self._room.in_flight
        if (generation := in_flight.of_session(session)) is not None:
            self._room.cancel(generation)
        elif (claim := in_flight.claim_of(session)) is not None:
            claim.cancelled = True
            if claim.generation is not None:
                self.abandon(claim.generation)
        else:
            raise NothingInFlight(session)

    async def cancel_and_wait(self, session: int, seconds: float) -> bool:
        """As `cancel`, where there is something; whether it ended in time."""
        generation = self._room.in_flight.of_session(session)
        if generation is None:
            return True
        self._room.cancel(generation)
        with trio.move_on_after(seconds):
            await generation.ended.wait()
        return generation.ended.is_set()
