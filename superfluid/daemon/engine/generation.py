"""One generation in flight: what it has drawn, what of it is committed, and who waits for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import trio

from superfluid.daemon.metrics import Metrics
from superfluid.model.callparse import BadCall, parse_calls
from superfluid.model.channels import ChannelSplitter
from superfluid.protocol.codes import Channel, Finish
from superfluid.protocol.records import Event, EventBody, Generated, ToolParseFailure, ToolUse, span_of
from superfluid.protocol.refusals import Refusal
from superfluid.scheduler.job import Job

DELTAS = 4096
"""Committed events that whoever asked may lag behind before the generation is cancelled."""

LIVE = 8192
"""Pieces that a follower may lag behind before the generation is cancelled."""

TOLD = (Generated, ToolUse, ToolParseFailure)
"""What of a generation's records goes to the client that asked for it (decision 8)."""

Shown = Sequence[tuple[Channel, str]]
"""Texts that became certain, by channel, in order."""

Texts = Sequence[str]
"""What each of some tokens made certain; often nothing."""


@dataclass(frozen=True, slots=True)
class Summary:
    """How a generation ended; `events` are those that went to the client."""

    events: tuple[Event, ...]
    tokens: int
    finish: int
    warm: int


@dataclass(frozen=True, slots=True)
class Cut:
    """What was drawn since the last cut, as records in stream order, and text that became certain by cutting."""

    bodies: tuple[EventBody, ...]
    shown: Shown = ()


class Generation:
    """A generation of one session, from its admission to its summary.

    The engine room feeds it (`draw`, `cut`), commits its records and tells it (`committed`, `end`); a use case
    follows `deltas` and then reads `summary`. Drawn text is provisional until its record is committed.
    """

    def __init__(
        self, job: Job, splitter: ChannelSplitter, metrics: Metrics, *, live: bool = False, ends: bool
    ) -> None:
        """With `live`, text of the text channel can be followed in `pieces`, ahead of its commit: the texts of tokens
        that came together, one a token.

        `ends`: nobody can continue the reply where it is cut.
        """
        self.job = job
        self._splitter = splitter
        self._metrics = metrics
        self._begun = False
        self._events: list[Event] = []
        self._total = 0
        self._deltas, self.deltas = trio.open_memory_channel[Event](DELTAS)
        self._live, self.pieces = trio.open_memory_channel[Texts](LIVE)
        self._followed = live
        self._ends = ends
        if not live:
            self._live.close()
        self.reasoned = False
        """whether a followed reply held anything but text"""
        self._said = False
        self.lagged = False
        """whether whoever follows `pieces` was too slow: the generation is to be cancelled"""
        self.ended = trio.Event()
        self.summary: Summary | None = None
        self.refusal: Refusal | None = None

    @property
    def session(self) -> int:
        return self.job.session

    def draw(self, tokens: Sequence[int]) -> Shown:
        """Some drawn tokens; the texts that became certain with them."""
        if not self._begun:
            self._begun = True
            self._metrics.first_token(trio.current_time() - self.job.arrived)
        shown: list[tuple[Channel, str]] = []
        texts: list[str] = []
        for token in tokens:
            certain = self._splitter.feed(token)
            shown += certain
            if self._followed:
                texts.append(self._text(certain))
        if self._followed:
            self._show(texts)
        return shown

    def _text(self, shown: Shown) -> str:
        """What a follower sees of it."""
        self.reasoned = self.reasoned or self._splitter.channel is not Channel.TEXT
        text = "".join(text for channel, text in shown if channel is Channel.TEXT)
        if self.reasoned and not self._said:
            text = text.lstrip()  # what sets the answer apart from the reasoning
        self._said = self._said or bool(text)
        return text

    def _show(self, texts: Texts) -> None:
        try:
            self._live.send_nowait(texts)
        except trio.WouldBlock:
            self.lagged = True
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # nobody follows

    def cut(self, finish: Finish) -> Cut:
        """What was drawn since the last cut; the last `Generated` says how it ended, empty where nothing was drawn.

        What may yet become a marker, and bytes of an incomplete character, wait for the next cut; at the end of the
        turn the first is text, and the second U+FFFD. A call that is whole is a `ToolUse`, or a `ToolParseFailure`
        with what the model wrote, right after the run that completes it.
        """
        shown: Shown = ()
        if finish is Finish.END_OF_TURN:
            shown = self._splitter.flush()
        elif finish is not Finish.OPEN and self._ends:
            shown = self._splitter.release()
        if shown and self._followed:
            self._show([self._text(shown)])
        bodies: list[EventBody] = []
        for run in self._splitter.runs():
            bodies.append(Generated(run.tokens, run.text, run.channel, Finish.OPEN))
            if run.call is not None:
                bodies += _calls(run.call)
        if finish is not Finish.OPEN:
            _finish(bodies, finish, self._splitter.channel)
        return Cut(tuple(bodies), shown)

    def committed(self, events: Sequence[Event]) -> bool:
        """Records of this generation are durable. False where nobody reads the deltas any more."""
        told = [event for event in events if isinstance(event.body, TOLD)]
        self._events += told
        self._total += sum(len(span_of(event.body)) for event in told)
        return not self.lagged and all(self._tell(event) for event in told)

    def _tell(self, event: Event) -> bool:
        try:
            self._deltas.send_nowait(event)
        except trio.WouldBlock:
            return False
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # nobody follows the events; who left altogether cancels, and a drain may have ended it meanwhile
        return True

    def end(self, finish: Finish) -> None:
        """The generation is over and everything of it is committed. Nothing more where it has failed meanwhile."""
        if self.ended.is_set():
            return
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


def _calls(raw: str) -> Iterable[EventBody]:
    calls = parse_calls(raw)
    if isinstance(calls, BadCall):
        return (ToolParseFailure(raw),)
    return tuple(ToolUse(call.name, call.arguments) for call in calls)


def _finish(bodies: list[EventBody], finish: Finish, channel: Channel) -> None:
    """Let the last `Generated` say how the generation ended."""
    for place in range(len(bodies) - 1, -1, -1):
        body = bodies[place]
        if isinstance(body, Generated):
            bodies[place] = replace(body, finish=finish)
            return
    bodies.append(Generated((), "", channel, finish))
