"""One generation in flight: what it has drawn, what of it is committed, and who waits for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import trio

from superfluid.daemon.metrics import Metrics
from superfluid.model.text import TextStream
from superfluid.protocol.codes import Channel, Finish
from superfluid.protocol.records import Event, Generated
from superfluid.protocol.refusals import Refusal
from superfluid.scheduler.job import Job

DELTAS = 4096
"""Committed events that whoever asked may lag behind before the generation is cancelled."""

LIVE = 8192
"""Pieces of text that a follower may lag behind before the generation is cancelled."""


@dataclass(frozen=True, slots=True)
class Summary:
    """How a generation ended; `events` are those that went to the client."""

    events: tuple[Event, ...]
    tokens: int
    finish: int
    warm: int


class Generation:
    """A generation of one session, from its admission to its summary.

    The engine room feeds it (`draw`, `cut`), commits its records and tells it (`committed`, `end`); a use case
    follows `deltas` and then reads `summary`. Drawn text is provisional until its record is committed.
    """

    def __init__(
        self, job: Job, text: TextStream, piece: Callable[[int], bytes], metrics: Metrics, *, live: bool = False
    ) -> None:
        """With `live`, drawn text can be followed token by token in `pieces`, ahead of its commit."""
        self.job = job
        self._text = text
        self._piece = piece
        self._metrics = metrics
        self._begun = False
        self._tokens: list[int] = []
        self._pieces: list[str] = []
        self._events: list[Event] = []
        self._total = 0
        self._deltas, self.deltas = trio.open_memory_channel[Event](DELTAS)
        self._live, self.pieces = trio.open_memory_channel[str](LIVE)
        if not live:
            self._live.close()
        self.lagged = False
        """whether whoever follows `pieces` was too slow: the generation is to be cancelled"""
        self.ended = trio.Event()
        self.summary: Summary | None = None
        self.refusal: Refusal | None = None

    @property
    def session(self) -> int:
        return self.job.session

    def draw(self, token: int) -> tuple[Channel, str]:
        """One drawn token; returns its channel and the text that it completes, which may be empty."""
        if not self._begun:
            self._begun = True
            self._metrics.first_token(trio.current_time() - self.job.arrived)
        text = self._text.feed(self._piece(token))
        self._tokens.append(token)
        self._pieces.append(text)
        self._show(text)
        return Channel.TEXT, text

    def _show(self, text: str) -> None:
        try:
            self._live.send_nowait(text)
        except trio.WouldBlock:
            self.lagged = True
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # nobody follows

    def cut(self, finish: Finish) -> Generated | None:
        """The record of what was drawn since the last one, None where that is nothing.

        Bytes of an incomplete character wait for the next record, and at the end of the turn become U+FFFD.
        """
        if finish is Finish.END_OF_TURN:
            rest = self._text.flush()
            self._pieces.append(rest)
            self._show(rest)
        if not self._tokens and finish is Finish.OPEN:
            return None
        record = Generated(tuple(self._tokens), "".join(self._pieces), Channel.TEXT, finish)
        self._tokens, self._pieces = [], []
        return record

    def committed(self, event: Event, tokens: int) -> bool:
        """A record of this generation is durable. False where nobody reads the deltas any more."""
        self._events.append(event)
        self._total += tokens
        if self.lagged:
            return False
        try:
            self._deltas.send_nowait(event)
        except trio.WouldBlock:
            return False
        except trio.BrokenResourceError:
            pass  # nobody follows the events; who left altogether cancels
        return True

    def end(self, finish: Finish) -> None:
        """The generation is over and everything of it is committed."""
        self.summary = Summary(tuple(self._events), self._total, finish, self.job.warm)
        self._close()

    def fail(self, refusal: Refusal) -> None:
        """The generation is over; what was not committed is lost."""
        if not self.ended.is_set():
            self.refusal = refusal
            self._close()

    def _close(self) -> None:
        self._deltas.close()
        self._live.close()
        self._metrics.ended(self.job.warm, ran=self.job.started)
        self.ended.set()
