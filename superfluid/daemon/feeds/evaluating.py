"""What is computed of a session's data ahead of any question: flash answers, and where an answer would begin.

In the background, after every batch, chat turn and new query (decisions 23 and 25). Each query runs on a copy of the
session's state that is never logged, in a lane that keeps nothing. What a turn overtakes is dropped; what newer data
overtake is kept, as the answer over the data that it saw, which is no current one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Set
from contextlib import ExitStack
from dataclasses import dataclass

import trio

from superfluid.daemon.book import Book
from superfluid.daemon.bus import Bus
from superfluid.daemon.engine.generation import Generation
from superfluid.daemon.engine.room import EngineRoom
from superfluid.daemon.feeds.questions import put_opener, put_question
from superfluid.daemon.served import ServedModel
from superfluid.daemon.sessions.generating import GREEDY, Generating
from superfluid.protocol.codes import Channel, Finish
from superfluid.protocol.feed_responses import FlashReady
from superfluid.protocol.records import Event, FlashAnswered, Generated, Ingested, span_of
from superfluid.protocol.refusals import Refusal
from superfluid.protocol.ticks import LaneOptions
from superfluid.sessions.state import SessionState

_LOG = logging.getLogger("superfluid.evaluating")

KEEPS_NOTHING = LaneOptions(ephemeral=True, gap=True)

TRIES = 3
"""How often an evaluation begins again that failed, until something new happens to the session."""

PAUSE = 1.0
"""Seconds before it does."""

LOOK_AHEAD = 0
"""Stands among the ids of flash queries, which are positive, for where an answer would begin."""

Position = tuple[int, int]
"""What a session's input was: its data version, and the tokens that were ever put on it."""


@dataclass(frozen=True, slots=True)
class Ready:
    """How an answer to the data alone would begin: the likeliest token, and the logit gap to the next one."""

    at: Position
    token: int
    text: str
    """the token's text without the space before it"""
    gap: float


def position(state: SessionState) -> Position:
    return state.feed.version, state.ever


class Evaluating:
    """Keeps the answers of all sessions current."""

    def __init__(self, book: Book, bus: Bus, room: EngineRoom, generating: Generating, model: ServedModel) -> None:
        bus.taps.append(self._committed)
        bus.ends.append(self._forget)
        room.restarted.append(self._compute_again)
        self._book = book
        self._room = room
        self._generating = generating
        self._model = model
        self.tell: Callable[[int, FlashReady], None] = lambda session, news: None
        """is given every answer that is another one than before"""
        self._due: dict[int, int] = {}
        """sessions to evaluate, and how often that was tried"""
        self._news = trio.Event()
        self._under_way: dict[int, trio.CancelScope] = {}
        self._behind: set[int] = set()
        """sessions that got more data since what is under way began"""
        self._left: dict[int, list[int]] = {}
        """what the latest evaluation of a session has not answered yet, in its order"""
        self._ready: dict[int, Ready] = {}
        self._cold: set[int] = set()
        """sessions whose KV went with a worker"""
        self._places = generating.background_places(2)

    # --- what the use cases call ----------------------------------------------------------------------------------

    def settled(self, session: int) -> None:
        """Something new is on the session's input, or asked of it: what is under way is overtaken."""
        if self._cares(session):
            self._again(session, 0)

    def more(self, session: int) -> None:
        """A batch was ingested. What is under way comes to its end, or data that never pauses would leave no answer
        at all; then follows the newest."""
        if session in self._under_way and self._cares(session):
            self._behind.add(session)
        else:
            self.settled(session)

    def _committed(self, session: int, event: Event) -> None:
        """What the session API puts on an input counts too: a reply once it is over, and whatever is appended."""
        in_flight, body = self._room.in_flight, event.body
        if isinstance(body, Ingested) or not self._cares(session) or in_flight.claimed(session):
            return  # who does that calls `settled`
        if isinstance(body, Generated):
            changed = body.finish != Finish.OPEN
        else:
            changed = bool(span_of(body)) and not in_flight.busy(session)
        if changed:
            self._again(session, 0)

    def _compute_again(self, sessions: Set[int]) -> None:
        """Another worker is there; `sessions` had KV in the one before."""
        for session in filter(self._cares, sessions):
            self._cold.add(session)
            self._again(session, 0)

    def _forget(self, session: int | None) -> None:
        if session is not None:
            self.pause(session)
            self._ready.pop(session, None)
            self._cold.discard(session)
            self._left.pop(session, None)

    def _cares(self, session: int) -> bool:
        head = self._book.heads.any(session)
        return head is not None and (head.feed.pre_decode or head.feed.flashes > 0)

    def pause(self, session: int) -> None:
        """A foreground request will change the session: what is under way is overtaken. `settled` is to follow."""
        self._due.pop(session, None)
        self._behind.discard(session)
        if (scope := self._under_way.get(session)) is not None:
            scope.cancel()

    def refresh(self, state: SessionState) -> None:
        """Evaluate what is not current, where nobody is at it: after a start, or a change through another API."""
        if state.id not in self._under_way and state.id not in self._due and self._stale(state):
            self._again(state.id, 0)

    def ready(self, state: SessionState) -> Ready | None:
        """Where an answer would begin, as long as it is true."""
        return self.ready_at(state.id, position(state)) if state.feed.pre_decode else None

    def ready_at(self, session: int, at: Position) -> Ready | None:
        """As `ready`, of a session whose input is at that position."""
        ready = self._ready.get(session)
        return ready if ready is not None and ready.at == at else None

    def _stale(self, state: SessionState) -> bool:
        ahead = state.feed.pre_decode and self.ready(state) is None
        return bool(state.tokens) and (ahead or not all(map(state.is_fresh, state.feed.flashes.values())))

    def _again(self, session: int, tries: int) -> None:
        self.pause(session)
        self._due[session] = tries
        self._news.set()

    # --- the work -------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Evaluate whatever is due, for ever."""
        async with trio.open_nursery() as nursery:
            while True:
                self._news = trio.Event()
                due, self._due = self._due, {}
                for session, tries in due.items():
                    scope = self._under_way[session] = trio.CancelScope()
                    nursery.start_soon(self._guarded, session, tries, scope)
                await self._news.wait()

    async def _guarded(self, session: int, tries: int, scope: trio.CancelScope) -> None:
        """Evaluate a session; whatever goes wrong with it goes wrong with it alone."""
        failed = False
        with scope:
            try:
                failed = not await self._evaluate(session)
            except Refusal as refusal:
                _LOG.info("session %s is not evaluated: %s", session, refusal.code)
                self._ready.pop(session, None)
            except Exception:
                _LOG.exception("the evaluation of session %s failed", session)
            if failed and tries < TRIES and not self._generating.closing:
                await trio.sleep(PAUSE)
                self._due[session] = tries + 1
                self._news.set()
        if self._under_way.get(session) is scope:
            del self._under_way[session]
            if session in self._behind:
                self._behind.discard(session)
                self.settled(session)

    async def _evaluate(self, session: int) -> bool:
        """Answer what is not answered over the input as it is now; False where some of it failed."""
        state = await self._book.now(session)
        if session in self._cold:
            self._cold.discard(session)
            self._generating.check_room(len(state.tokens))
            await self._warm(state)
        if not self._stale(state):
            return True
        work = _Work(state, self._in_order(state))
        self._left[session] = work.left
        async with trio.open_nursery() as nursery:
            for id in tuple(work.left):
                await self._begin(nursery, work, id)
        return not work.failed

    def _in_order(self, state: SessionState) -> list[int]:
        """What is to be answered, as it was registered, behind the look ahead. Where the evaluation before was
        overtaken, what it did not get to comes first: else the last would never be answered."""
        ahead = [LOOK_AHEAD] if state.feed.pre_decode and self.ready(state) is None else []
        stale = ahead + [id for id, flash in state.feed.flashes.items() if not state.is_fresh(flash)]
        first = next(iter(self._left.get(state.id, ())), LOOK_AHEAD)
        return [id for id in stale if id >= first] + [id for id in stale if id < first]

    async def _warm(self, state: SessionState) -> None:
        """Have the KV of the session's input again, before anybody asks."""
        with self._book.passing(GREEDY, like=state) as asked:
            generation = await self._generating.admit_in_time(asked, 0, kv_session=state.id)
            if generation is not None:
                await self._end_of(generation)

    async def _begin(self, nursery: trio.Nursery, work: _Work, id: int) -> None:
        """Queue one query, or the look ahead, once there is a place for it: they come in order."""
        await self._places.acquire()
        with ExitStack() as stack:
            stack.callback(self._places.release)
            flash = work.state.feed.flashes[id] if id != LOOK_AHEAD else None
            try:
                asked = stack.enter_context(self._book.passing(GREEDY, like=work.state))
                if flash is None:
                    put_opener(self._book, self._model, asked)
                else:
                    await put_question(self._book, self._model, asked, flash.query)
                self._generating.check_room(len(asked.tokens))
            except Refusal as refusal:  # it has an answer again when something has left the window
                _LOG.info("a query over session %s is not evaluated: %s", work.state.id, refusal.code)
                work.left.remove(id)
                return
            limit = flash.max_tokens if flash is not None else 1
            generation = await self._generating.admit_in_time(asked, limit, KEEPS_NOTHING)
            if generation is None:
                return
            nursery.start_soon(self._follow, work, id, generation, stack.pop_all())

    async def _follow(self, work: _Work, id: int, generation: Generation, resources: ExitStack) -> None:
        with resources:
            await self._end_of(generation)
        summary = generation.summary
        if summary is None or summary.finish in (Finish.CANCELLED, Finish.ERROR):
            work.failed = True
            return
        drawn = [event.body for event in summary.events if isinstance(event.body, Generated)]
        if id == LOOK_AHEAD:
            self._keep_ready(work.state, drawn, generation.job.gap)
            work.left.remove(id)
            return
        text = "".join(part.text for part in drawn if part.channel == Channel.TEXT)
        try:
            if await self._keep_answer(work.state, id, text, generation.job.gap):
                work.left.remove(id)
        except Refusal as refusal:
            work.failed = True
            _LOG.info("an answer over session %s is not kept: %s", work.state.id, refusal.code)

    async def _end_of(self, generation: Generation) -> None:
        """Wait for it; where this is cancelled, so is the generation, and its lane has ended."""
        try:
            await generation.ended.wait()
        finally:
            await self._generating.see_off(generation)

    def _keep_ready(self, state: SessionState, drawn: list[Generated], gap: float) -> None:
        tokens = [token for part in drawn for token in part.span]
        if tokens:
            text = self._model.vocabulary.piece(tokens[0]).decode("utf-8", "replace").removeprefix(" ")
            self._ready[state.id] = Ready(position(state), tokens[0], text, gap)

    async def _keep_answer(self, state: SessionState, id: int, value: str, gap: float) -> bool:
        """False where it was overtaken."""
        async with self._book.writing(state.id) as now:
            flash = now.feed.flashes.get(id)
            version = state.feed.version
            # Of older data it is still their answer; the same data behind another conversation are none of its.
            is_older = flash is not None and flash.version <= version < now.feed.version
            if flash is None or not (is_older or position(now) == position(state)):
                return flash is None
            answered = FlashAnswered(id, value, version, gap)
            await self._book.commit_one(now, answered)
            if flash.value != value:
                self.tell(state.id, FlashReady(id, flash.query, value, answered.data_version, gap))
            return True


@dataclass(slots=True)
class _Work:
    """One evaluation: the state that is evaluated, and what of it is not answered yet."""

    state: SessionState
    left: list[int]
    failed: bool = False
