"""Use case of the stateless routes: a whole conversation, or a prompt, in one request; a reply, and nothing kept.

Each request is a session of its own that is not logged, unless requests are to be kept (decision 38). It goes through
the same rendering, queue and worker as any other, so what it shares with others comes warm.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import starmap
from typing import Any, NamedTuple

import trio

from superfluid.daemon.book import Book
from superfluid.daemon.engine.generation import Generation
from superfluid.daemon.replies.cutting import Cutting
from superfluid.daemon.replies.memory import ReplyMemory
from superfluid.daemon.replies.variants import Variants
from superfluid.daemon.served import ServedModel
from superfluid.daemon.sessions.generating import GREEDY, Generating
from superfluid.daemon.sessions.kept_requests import KeptRequests
from superfluid.model.channels import Channels
from superfluid.model.stops import StopFinder
from superfluid.protocol.codes import Channel, Finish, Qos, Role
from superfluid.protocol.records import (
    Appended,
    Created,
    Event,
    EventBody,
    Generated,
    GenerationFingerprint,
    GenerationPrompt,
    GenParams,
    Message,
)
from superfluid.protocol.refusals import EmptySession, ProtocolRefusal, ShuttingDown
from superfluid.protocol.ticks import LaneOptions
from superfluid.sessions import decide
from superfluid.sessions.resending import system_first
from superfluid.sessions.state import SessionState


class Turn(NamedTuple):
    """One message of a conversation; `role` is a `codes.Role`."""

    role: int
    text: str


@dataclass(frozen=True, slots=True)
class Ask:
    """What a stateless request wants. Exactly one of `turns` and `prompt` is given.

    `prompt` is text, control tokens allowed, or token ids. `max_tokens` None is as much as the window holds. The
    reply ends before the first of `stops`. `settings` are told to the chat template, as far as it knows them.
    """

    params: GenParams
    turns: tuple[Turn, ...] | None = None
    prompt: str | tuple[int, ...] | None = None
    max_tokens: int | None = None
    stops: tuple[str, ...] = ()
    qos: int = Qos.AGENT
    options: LaneOptions = field(default_factory=LaneOptions)
    settings: Mapping[str, Any] = field(default_factory=dict)


class Reply:
    """A reply under way. Iterate `pieces`; the rest is final after that."""

    def __init__(
        self,
        generation: Generation,
        prompt_tokens: int,
        stops: tuple[str, ...],
        abandon: Callable[[Generation], None],
        kept: int | None = None,
    ) -> None:
        self.kept = kept
        """the session that stays of a request by itself"""
        self._generation = generation
        self._abandon = abandon
        self._finder = StopFinder(stops)
        self.prompt_tokens = prompt_tokens
        self.finish = Finish.OPEN
        self.completion_tokens = 0
        self.whole = False
        """whether `text` is all of what was drawn, to the end of the turn, and there was no reasoning before it"""
        self.text = ""

    @property
    def stop(self) -> str | None:
        """The stop string that ended the reply."""
        return self._finder.found

    @property
    def lagged(self) -> bool:
        """Whether its pieces were taken too slowly, and it was cancelled for that."""
        return self._generation.lagged

    @property
    def cached_tokens(self) -> int:
        """Prompt tokens whose KV was held; final once the pieces have ended."""
        return min(self._generation.job.warm, self.prompt_tokens)

    async def pieces(self) -> AsyncIterator[str]:
        """The reply's text as it is drawn, reasoning left out. Raises GenerationFailed where it fails on the way."""
        async for texts in self._generation.pieces:
            certain = ""
            for text in texts:
                self.completion_tokens += 1
                certain += self._finder.feed(text)
                if self.stop is not None:
                    break
            if certain:
                self.text += certain
                yield certain
            if self.stop is not None:
                self.finish = Finish.END_OF_TURN
                self._abandon(self._generation)
                await self._generation.ended.wait()  # what came warm is told with the tick
                if (summary := self._generation.summary) is not None:  # text that was held back is no token
                    self.completion_tokens = min(self.completion_tokens, summary.tokens)
                return
        await self._generation.ended.wait()
        if self._generation.refusal is not None:
            raise self._generation.refusal
        if self._generation.lagged:  # some text never got here
            self.finish = Finish.CANCELLED
            return
        summary = self._generation.summary
        assert summary is not None
        self.finish, self.completion_tokens = Finish(summary.finish), summary.tokens
        if rest := self._finder.flush():
            self.text += rest
            yield rest
        # Templates leave the reasoning of earlier turns out, so what was drawn is not what the text stands for.
        self.whole = self.stop is None and self.finish is Finish.END_OF_TURN and not self._generation.reasoned

    def drawn(self) -> tuple[int, ...]:
        """All tokens drawn, the end of turn included."""
        summary = self._generation.summary
        events = summary.events if summary is not None else ()
        return tuple(token for event in events if isinstance(event.body, Generated) for token in event.body.span)


@dataclass(slots=True)
class _Prompt:
    """What a request puts on the input, as it grows."""

    model: ServedModel
    book: Book
    state: SessionState
    events: list[Event] | None = None
    """its records, where they are wanted"""

    def put(self, *bodies: EventBody) -> None:
        events = self.book.pass_by(self.state, *bodies)
        if self.events is not None:
            self.events += events


class Conversing:
    def __init__(self, book: Book, generating: Generating, model: ServedModel, kept: KeptRequests) -> None:
        self._book = book
        self._generating = generating
        self.model = model
        self.kept = kept
        self._cutting = Cutting(book, model)
        self._variants = Variants(model)
        self._replies = ReplyMemory()

    @asynccontextmanager
    async def reply(self, ask: Ask) -> AsyncIterator[Reply]:
        """The reply to `ask`. Leaving the block early cancels, queued or running.

        Raises OverWindow before anything is drawn, and ProtocolRefusal and BadSettings with the template's own words.
        """
        decide.check_params(ask.params)
        model = await self._variants.told(ask.settings)
        async with self._rendered(model, ask) as state:
            prompt_tokens = len(state.tokens)
            limit = self.model.window if ask.max_tokens is None else ask.max_tokens
            # What answers a raw prompt is all text.
            channels = Channels() if ask.turns is None else model.channels.without_calls()
            generation = self._generating.admit(
                state, limit, ask.qos, ask.options, channels=channels, live=True, ends=True
            )
            kept = state.id if self.kept.on else None
            reply = Reply(generation, prompt_tokens, ask.stops, self._generating.abandon, kept)
            try:
                yield reply
            finally:
                if reply.whole and ask.turns is not None:  # what goes on from a raw prompt is no turn of anybody
                    self._replies.keep(reply.text, reply.drawn())
                await self._generating.see_off(generation)
                if kept is not None and reply.stop is not None and generation.ended.is_set():
                    await self._cut_at_stop(kept, ask, reply)

    @asynccontextmanager
    async def _rendered(self, model: ServedModel, ask: Ask) -> AsyncIterator[SessionState]:
        """A session with the whole prompt, which leaves room for a reply; one that is kept is in the log. Raises as
        `reply`, and StoreFailed."""
        if not self.kept.on:
            with self._book.passing(ask.params) as state:
                await self._put(_Prompt(model, self._book, state), ask)
                self._generating.check_room(len(state.tokens))
                yield state
            return
        prompt = _Prompt(model, self._book, SessionState(self._book.heads.next_request_id()), [])
        prompt.put(Created(None, ask.params), decide.set_meta(prompt.state, 0, None, archived=True))
        prompt.put(GenerationFingerprint(model.fingerprint(ask.params)))
        await self._put(prompt, ask)
        self._generating.check_room(len(prompt.state.tokens))
        if self._generating.closing:
            raise ShuttingDown
        async with self.kept.logged(prompt.state, prompt.events or ()):
            yield prompt.state

    async def _cut_at_stop(self, session: int, ask: Ask, reply: Reply) -> None:
        """What was drawn after the stop string is no part of the reply."""
        if ask.turns is not None:
            await self._cutting.reply(session, reply.text)
        else:
            await self._cutting.continuation(session, reply.prompt_tokens, reply.text)

    async def count(self, turns: tuple[Turn, ...], settings: Mapping[str, Any]) -> int:
        """Tokens of the prompt that a reply to `turns` would be drawn from; it may be longer than the window.

        Raises OverWindow where it is too long to be counted, and otherwise as `reply`.
        """
        ask = Ask(params=GREEDY, turns=turns)
        model = await self._variants.told(settings)
        with self._book.passing(ask.params) as state:
            await self._put(_Prompt(model, self._book, state), ask)
            return len(state.tokens)

    async def _put(self, prompt: _Prompt, ask: Ask) -> None:
        self._check_size(ask)
        if ask.prompt is not None:
            await self._put_raw(prompt, ask.prompt)
            return
        for turn in await self._arranged(prompt.model, ask):
            await self._put_turn(prompt, turn)
            await trio.lowlevel.checkpoint()
        if not prompt.state.tokens:
            raise EmptySession(prompt.state.id)
        if opener := prompt.model.opener(prompt.state):
            prompt.put(GenerationPrompt(opener))

    def _check_size(self, ask: Ask) -> None:
        texts = [turn.text for turn in ask.turns or ()]
        if isinstance(ask.prompt, str):
            texts.append(ask.prompt)
        self.model.check_length(sum(map(len, texts)), messages=len(texts))

    async def _arranged(self, model: ServedModel, ask: Ask) -> tuple[Turn, ...]:
        """Late system messages keep their place, or go to the first where the template refuses them (decision 35)."""
        turns = ask.turns or ()
        if all(turn.role != Role.SYSTEM for turn in turns[1:]):
            return turns
        with self._book.passing(ask.params) as scratch:
            try:
                for turn in turns:
                    await self._put_turn(_Prompt(model, self._book, scratch), turn)
                    await trio.lowlevel.checkpoint()
            except ProtocolRefusal:
                return tuple(starmap(Turn, system_first(turns)))
        return turns

    async def _put_raw(self, prompt: _Prompt, raw: str | tuple[int, ...]) -> None:
        vocabulary = self.model.vocabulary
        text = raw if isinstance(raw, str) else None
        if isinstance(raw, str):
            span = await self.model.tokens(raw)
            if vocabulary.adds_bos and vocabulary.bos is not None and span[:1] != (vocabulary.bos,):
                span = (vocabulary.bos, *span)
        else:
            span = raw
            if any(token >= vocabulary.size for token in span):
                raise ProtocolRefusal(f"prompt: a token id is outside the vocabulary of {vocabulary.size}")
        if not span:
            raise ProtocolRefusal("prompt: it has no tokens")
        prompt.put(Appended(text, span))

    async def _put_turn(self, prompt: _Prompt, turn: Turn) -> None:
        state = prompt.state
        drawn = self._replies.find(turn.text) if turn.role == Role.ASSISTANT and state.tokens else None
        opener = prompt.model.opener(state) if drawn is not None else ()
        if drawn is not None and opener:
            finished = Generated(drawn, turn.text, Channel.TEXT, Finish.END_OF_TURN)
            prompt.put(GenerationPrompt(opener), finished)
            return
        span = await prompt.model.message(state, turn.role, turn.text)
        prompt.put(Message(turn.role, turn.text, span))
