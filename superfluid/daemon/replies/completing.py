"""Use case Complete: the text between a prefix and a suffix, greedy, and nothing kept in the log (spec: wire-facts,
8.15).

Each completion is a session of its own that is never logged, so one that shares its front with an earlier one finds
that warm. The latest answers are remembered whole.
"""

from __future__ import annotations

import hashlib
import math
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import takewhile

import trio

from superfluid.daemon.book import Book
from superfluid.daemon.engine.generation import Generation
from superfluid.daemon.metrics import Metrics
from superfluid.daemon.replies.bucket import Bucket
from superfluid.daemon.served import INLINE, ServedModel
from superfluid.daemon.sessions.generating import GREEDY, Generating
from superfluid.model.channels import Channels
from superfluid.model.fim import FimDialect
from superfluid.model.text import TextStream
from superfluid.protocol.codes import FimMode, Finish, Qos
from superfluid.protocol.records import Appended, Generated, Span
from superfluid.protocol.refusals import ProtocolRefusal
from superfluid.protocol.responses import Completion, Throttled
from superfluid.protocol.ticks import pack

KEPT = 256
"""Answers remembered; the ones unused for longest go first."""

_Key = tuple[bytes, int, int]

_EXPIRED = Completion("", (), cached=False, expired=True)
"""Half a middle is of no use to an editor (spec: wire-facts, 8.15)."""


@dataclass(frozen=True, slots=True)
class Limits:
    """`rate` and `burst` are those of each client's `Bucket`; a `deadline_ms` of 0 is none."""

    rate: float
    burst: float
    deadline_ms: int


class Completing:
    def __init__(
        self, book: Book, generating: Generating, model: ServedModel, metrics: Metrics, limits: Limits
    ) -> None:
        self._book = book
        self._generating = generating
        self._model = model
        self._metrics = metrics
        self._limits = limits
        self._answers: OrderedDict[_Key, Completion] = OrderedDict()

    def bucket(self) -> Bucket:
        """A full bucket, for one connection or one listener."""
        return Bucket(self._limits.rate, self._limits.burst)

    async def complete(
        self, bucket: Bucket, prefix: str, suffix: str, mode: int, max_tokens: int
    ) -> Completion | Throttled:
        """The middle, without the token that ended it; `expired` and empty where the deadline came first.

        Cancelled, it cancels, queued or running. Raises NoFim, ProtocolRefusal for an unknown mode, OverWindow, and
        what a generation may raise.
        """
        if wait := bucket.take(trio.current_time()):
            self._metrics.completed("throttled")
            return Throttled(max(1, math.ceil(wait * 1000)))
        dialect = FimDialect.of(self._model.vocabulary)
        if mode not in list(FimMode):
            raise ProtocolRefusal(f"unknown FIM mode {mode}; 0 is prefix first (PSM), 1 suffix first (SPM)")
        deadline = trio.current_time() + (self._limits.deadline_ms / 1000 or math.inf)
        prompt = await self._prompt(dialect, prefix, suffix, FimMode(mode))
        self._generating.check_room(len(prompt))
        key = (hashlib.blake2b(pack(prompt), digest_size=16).digest(), mode, max_tokens)
        if (known := self._answers.get(key)) is not None:
            self._answers.move_to_end(key)
            self._metrics.completed("cached")
            return replace(known, cached=True)
        answer = await self._generated(dialect, prompt, max_tokens, deadline)
        self._metrics.completed("expired" if answer.expired else "generated")
        if not answer.expired:
            self._keep(key, answer)
        return answer

    def _keep(self, key: _Key, answer: Completion) -> None:
        self._answers[key] = answer
        self._answers.move_to_end(key)
        if len(self._answers) > KEPT:
            self._answers.popitem(last=False)

    async def _prompt(self, dialect: FimDialect, prefix: str, suffix: str, mode: FimMode) -> Span:
        size, vocabulary = len(prefix) + len(suffix), self._model.vocabulary
        self._model.check_length(size)
        if size <= INLINE:
            return dialect.prompt(vocabulary, prefix, suffix, mode)
        return await trio.to_thread.run_sync(dialect.prompt, vocabulary, prefix, suffix, mode)

    async def _generated(self, dialect: FimDialect, prompt: Span, max_tokens: int, deadline: float) -> Completion:
        if max_tokens == 0:
            return Completion("", (), cached=False, expired=False)
        if trio.current_time() >= deadline:
            return _EXPIRED
        with self._book.passing(GREEDY) as state:
            self._book.pass_by(state, Appended(None, prompt))
            generation = self._generating.admit(state, max_tokens, Qos.COMPLETION, channels=Channels())
            try:
                with trio.move_on_at(deadline):
                    await _to_end(generation, dialect.ends)
            finally:
                await self._generating.see_off(generation)
        if generation.refusal is not None:
            raise generation.refusal
        drawn = list(_drawn(generation))
        middle = tuple(takewhile(lambda token: token not in dialect.ends, drawn))
        cut = generation.summary is None or generation.summary.finish == Finish.CANCELLED
        if cut and len(middle) == len(drawn):
            return _EXPIRED
        return Completion(self._text(middle), middle, cached=False, expired=False)

    def _text(self, tokens: Iterable[int]) -> str:
        """Whole characters only: what is put into a file must not end in half of one."""
        text = TextStream()
        return "".join(text.feed(self._model.vocabulary.piece(token)) for token in tokens)


async def _to_end(generation: Generation, ends: frozenset[int]) -> None:
    """Return when it has ended, or drawn one of `ends`."""
    async for event in generation.deltas:
        if isinstance(event.body, Generated) and not ends.isdisjoint(event.body.span):
            return
    await generation.ended.wait()


def _drawn(generation: Generation) -> Iterator[int]:
    """The tokens that are committed."""
    for event in generation.summary.events if generation.summary is not None else ():
        if isinstance(event.body, Generated):
            yield from event.body.span
