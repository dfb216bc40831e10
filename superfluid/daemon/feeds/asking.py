"""Use case Ask: a question over a session that leaves no trace in it (spec: streaming-facts, section 4).

It runs on a copy of the session's state that is never logged, in a lane that keeps nothing (decisions 19, 24 to 26).
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import trio

from superfluid.daemon.book import Book
from superfluid.daemon.engine.in_flight import Claim
from superfluid.daemon.engine.room import EngineRoom
from superfluid.daemon.feeds.evaluating import Evaluating
from superfluid.daemon.feeds.flashing import Flashing
from superfluid.daemon.feeds.questions import put_question
from superfluid.daemon.replies.conversing import Reply
from superfluid.daemon.served import ServedModel
from superfluid.daemon.sessions.generating import Generating
from superfluid.model.stops import LONGEST_STOP, MOST_STOPS
from superfluid.protocol.codes import Qos
from superfluid.protocol.feed_responses import Answer
from superfluid.protocol.records import GenParams
from superfluid.protocol.refusals import ProtocolRefusal
from superfluid.protocol.ticks import LaneOptions
from superfluid.protocol.wire import single
from superfluid.sessions import decide
from superfluid.sessions.state import SessionState

TEMPERATURE, TOP_P = single(0.6), single(0.9)
"""How a question is sampled that does not say."""

GAP_THRESHOLD = 2.0
"""The logit gap that a fast answer needs where the question does not say."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked. `max_tokens` None is as much as the window holds; `params` None draws with a fresh seed.

    With `fast_answer`, one of these words may answer without computing, see `Flashing.fast_answer`.
    """

    prompt: str
    max_tokens: int | None = None
    params: GenParams | None = None
    stops: tuple[str, ...] = ()
    fast_answer: tuple[str, ...] = ()
    gap_threshold: float = GAP_THRESHOLD
    qos: int = Qos.INTERACTIVE
    options: LaneOptions = field(default_factory=LaneOptions)


class Answering:
    """An answer under way. Iterate `pieces`; `answer` is there once they have ended."""

    def __init__(self, answer: Answer | None, reply: Reply | None, version: int, prompt_tokens: int) -> None:
        self._answer = answer
        self._reply = reply
        self._version = version
        self.prompt_tokens = prompt_tokens
        """the question's own"""

    @property
    def ready(self) -> bool:
        """Whether the answer cost nothing: it was there."""
        return self._answer is not None

    @property
    def lagged(self) -> bool:
        """Whether its pieces were taken too slowly, and it was cancelled for that."""
        return self._reply is not None and self._reply.lagged

    @property
    def context(self) -> int:
        """Tokens of the session before the question, where it is drawn."""
        return 0 if self._reply is None else self._reply.prompt_tokens - self.prompt_tokens

    @property
    def answer(self) -> Answer:
        if self._answer is not None:
            return self._answer
        reply = self._reply
        assert reply is not None, "an answer is there already or drawn"
        return Answer(
            text=reply.text,
            finish=reply.finish,
            data_version=self._version,
            prompt_tokens=self.prompt_tokens,
            completion_tokens=reply.completion_tokens,
            cached_tokens=reply.cached_tokens,
            flash_id=None,
            confidence=None,
            logit_gap=None,
        )

    def pieces(self) -> AsyncIterator[str]:
        """The answer's text as it is drawn. Raises GenerationFailed where it fails on the way."""
        return self._at_once() if self._reply is None else self._reply.pieces()

    async def _at_once(self) -> AsyncIterator[str]:
        await trio.lowlevel.checkpoint()
        if self.answer.text:
            yield self.answer.text


class Asking:
    def __init__(
        self,
        book: Book,
        room: EngineRoom,
        generating: Generating,
        model: ServedModel,
        evaluating: Evaluating,
        flashing: Flashing,
    ) -> None:
        self._book = book
        self._room = room
        self._generating = generating
        self._model = model
        self._evaluating = evaluating
        self._flashing = flashing

    @asynccontextmanager
    async def ask(self, session: int, question: Question) -> AsyncIterator[Answering]:
        """The answer to `question` over what the session holds now. Leaving the block early cancels.

        Raises SessionBusy beside another foreground request of the session, and OverWindow, with the tokens of the
        whole, where the question does not fit; then nothing was drawn.
        """
        params = _params(question)
        self._book.live(session)
        with self._room.in_flight.claim(session) as claim:
            state = await self._book.now(session)
            self._evaluating.refresh(state)
            there = self._there(state, question)
            if there is not None:
                yield Answering(there, None, there.data_version, 0)
                return
            with self._book.passing(params, like=state) as asked:
                async with self._drawn(claim, asked, question) as reply:
                    yield Answering(None, reply, state.feed.version, len(asked.tokens) - len(state.tokens))

    def _there(self, state: SessionState, question: Question) -> Answer | None:
        """What is known already: a flash query's answer, or a fast one."""
        return self._flashing.known(state, question.prompt) or self._flashing.fast_answer(
            state, question.fast_answer, question.gap_threshold
        )

    @asynccontextmanager
    async def _drawn(self, claim: Claim, state: SessionState, question: Question) -> AsyncIterator[Reply]:
        self._model.check_length(len(question.prompt), before=len(state.tokens))
        await put_question(self._book, self._model, state, question.prompt)
        self._generating.check_room(len(state.tokens))
        limit = self._model.window if question.max_tokens is None else question.max_tokens
        options = replace(question.options, ephemeral=True)
        generation = self._generating.admit(state, limit, question.qos, options, live=True)
        self._generating.draw_for(claim, generation)
        try:
            yield Reply(generation, len(state.tokens), question.stops, self._generating.abandon)
        finally:
            await self._generating.see_off(generation)


def _params(question: Question) -> GenParams:
    """How the answer is sampled. Raises ProtocolRefusal for a question that is none."""
    if not question.prompt:
        raise ProtocolRefusal("prompt: it is empty")
    if question.max_tokens is not None and question.max_tokens < 1:
        raise ProtocolRefusal("max_tokens: it must be 1 or more")
    if len(question.stops) > MOST_STOPS or any(len(stop) > LONGEST_STOP for stop in question.stops):
        raise ProtocolRefusal(f"stop: at most {MOST_STOPS} texts of at most {LONGEST_STOP} characters")
    if question.params is None:
        return GenParams(TEMPERATURE, TOP_P, 0.0, 0, secrets.randbits(64))
    return decide.check_params(question.params)
