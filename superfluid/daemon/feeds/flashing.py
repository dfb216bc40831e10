"""Use cases on flash queries, standing questions with answers kept current (spec: streaming-facts, section 5)."""

from __future__ import annotations

from superfluid.daemon.book import Book
from superfluid.daemon.feeds.evaluating import Evaluating
from superfluid.daemon.feeds.questions import put_question
from superfluid.daemon.metrics import Metrics
from superfluid.daemon.served import ServedModel
from superfluid.daemon.sessions.generating import Generating
from superfluid.protocol.codes import Finish
from superfluid.protocol.feed_refusals import FlashExists, TooManyFlashes, UnknownFlash
from superfluid.protocol.feed_responses import Answer, FlashEntry
from superfluid.protocol.records import FlashAdded, FlashRemoved
from superfluid.protocol.refusals import OverWindow, ProtocolRefusal
from superfluid.sessions.feed import Flash
from superfluid.sessions.state import SessionState

MOST = 20
"""Flash queries a session."""

DEFAULT_TOKENS = 32
MOST_TOKENS = 256


class Flashing:
    def __init__(
        self, book: Book, generating: Generating, model: ServedModel, evaluating: Evaluating, metrics: Metrics
    ) -> None:
        self._book = book
        self._generating = generating
        self._model = model
        self._evaluating = evaluating
        self._metrics = metrics

    async def add(self, session: int, query: str, max_tokens: int = DEFAULT_TOKENS) -> FlashEntry:
        """Register a query; `max_tokens` is clamped to 1 to 256. It is answered in the background.

        Raises ProtocolRefusal, TooManyFlashes, FlashExists, and OverWindow for one that could never be asked.
        """
        if not query:
            raise ProtocolRefusal("query: it is empty")
        if len(query) // self._model.vocabulary.longest > self._model.window:
            raise OverWindow(len(query) // self._model.vocabulary.longest, self._model.window, counted=False)
        tokens = len(await self._model.plain(query))
        async with self._book.writing(session) as state:
            feed = state.feed
            if any(flash.query == query for flash in feed.flashes.values()):
                raise FlashExists(session)
            if len(feed.flashes) >= MOST:
                raise TooManyFlashes(MOST)
            with self._book.passing(state.params, like=state) as asked:
                await put_question(self._book, self._model, asked, query)
                self._generating.check_room(len(asked.tokens))
            id = feed.last_flash + 1
            await self._book.commit_one(state, FlashAdded(id, query, min(max(max_tokens, 1), MOST_TOKENS)))
            entry = _entry(state, id, state.feed.flashes[id], tokens)
        self._evaluating.settled(session)
        return entry

    async def list(self, session: int) -> tuple[tuple[FlashEntry, ...], int]:
        """All queries in the order of their registration, and the session's data version."""
        state = await self._book.now(session)
        self._evaluating.refresh(state)
        entries = [
            _entry(state, id, flash, len(await self._model.plain(flash.query)))
            for id, flash in state.feed.flashes.items()
        ]
        return tuple(entries), state.feed.version

    async def remove(self, session: int, id: int) -> int:
        """Forget a query; how many are left. Raises UnknownFlash."""
        async with self._book.writing(session) as state:
            if id not in state.feed.flashes:
                raise UnknownFlash(session, id)
            await self._book.commit_one(state, FlashRemoved(id))
            return len(state.feed.flashes)

    # --- answers that are there -----------------------------------------------------------------------------------

    def known(self, state: SessionState, prompt: str) -> Answer | None:
        """The current answer of the query that is exactly `prompt` (decision 24)."""
        for id, flash in state.feed.flashes.items():
            if flash.query == prompt and flash.value is not None and state.is_fresh(flash):
                self._metrics.flash_hits += 1
                return _free(flash.value, state, flash_id=id, confidence=flash.confidence)
        return None

    def fast_answer(self, state: SessionState, words: tuple[str, ...], threshold: float) -> Answer | None:
        """The word that an answer would begin, where the model is as sure of it as `threshold` (decision 25)."""
        ready = self._evaluating.ready(state)
        if not words or ready is None or not ready.text or not ready.gap >= threshold:
            return None
        word = next((word for word in words if word.startswith(ready.text)), None)
        if word is None:
            return None
        self._metrics.ready_exits += 1
        return _free(word, state, logit_gap=ready.gap)


def _free(
    text: str,
    state: SessionState,
    *,
    flash_id: int | None = None,
    confidence: float | None = None,
    logit_gap: float | None = None,
) -> Answer:
    """An answer that costs nothing."""
    return Answer(text, Finish.END_OF_TURN, state.feed.version, 0, 0, 0, flash_id, confidence, logit_gap)


def _entry(state: SessionState, id: int, flash: Flash, tokens: int) -> FlashEntry:
    answered = flash.value is not None
    return FlashEntry(
        id=id,
        query=flash.query,
        max_tokens=flash.max_tokens,
        tokens=tokens,
        fresh=state.is_fresh(flash),
        value=flash.value,
        data_version=flash.version if answered else None,
        confidence=flash.confidence if answered else None,
        evaluated_at=flash.answered_ms // 1000 if answered else None,
    )
