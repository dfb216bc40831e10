"""One generation as it runs, and the reply that it comes to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from superfluid_client.codes import CHANNEL_NAMES, FINISH_NAMES, REASONING, name_of
from superfluid_client.errors import SuperfluidError, refusal
from superfluid_client.events import Event, ToolCall
from superfluid_client.transport import Frames

if TYPE_CHECKING:
    from superfluid_client.session import Session


@dataclass(frozen=True)
class Chunk:
    """A piece of a reply. `kind` is "text", "reasoning" or "tool_call"."""

    kind: str
    text: str


@dataclass(frozen=True)
class Reply:
    """What one generation committed. `finish` is none, stop, length, grammar, cancelled or error.

    `tokens` counts what was drawn, `warm_prefix` the prompt tokens that were not computed anew.
    """

    text: str
    reasoning: str
    tool_calls: list[ToolCall]
    finish: str
    tokens: int
    warm_prefix: int
    events: list[Event]

    @classmethod
    def of(cls, events: list[Event], done: Mapping[str, Any]) -> Reply:
        """From the committed events and the summary that ends the stream."""
        generated = [event for event in events if event.kind == "Generated"]
        return cls(
            text="".join(event.text for event in generated if event.channel != REASONING),
            reasoning="".join(event.text for event in generated if event.channel == REASONING),
            tool_calls=[ToolCall.of(event) for event in events if event.kind == "ToolUse"],
            finish=name_of(done["finish"], FINISH_NAMES),
            tokens=done["tokens_generated"],
            warm_prefix=done["warm_prefix"],
            events=events,
        )

    def __str__(self) -> str:
        return self.text


class Stream:
    """A generation to iterate over, once. It starts with the iteration; `reply` is there when it has ended.

    With `provisional`, chunks are text ahead of its commit, token by token, else text once it is committed. Leaving
    the loop early cancels the generation and waits until it has ended.
    """

    def __init__(self, session: Session, max_tokens: int, provisional: bool) -> None:
        self.reply: Reply | None = None
        self._session = session
        self._max_tokens = max_tokens
        self._provisional = provisional
        self._events: list[Event] = []
        self._taken = False

    def __iter__(self) -> Iterator[Chunk]:
        if self._taken:
            raise RuntimeError("a stream can be iterated once; ask the session for another one")
        self._taken = True
        return self._chunks()

    def _chunks(self) -> Iterator[Chunk]:
        request = {"session": self._session.id, "max_tokens": self._max_tokens, "provisional": self._provisional}
        with closing(self._session.client.transport.stream("/web/stream", request)) as frames:
            try:
                for frame in frames:
                    chunk = self._take(frame)
                    if chunk is not None and chunk.text:
                        yield chunk
            except GeneratorExit:
                self._abandon(frames)
                raise
            except SuperfluidError:
                if self.reply is None:
                    raise
        if self.reply is None:
            raise SuperfluidError(f"session {self._session.id}: the stream ended before its reply was done")

    def _take(self, frame: Mapping[str, Any]) -> Chunk | None:
        """Note what a frame says; the chunk that it holds for the reader, if any."""
        if "error" in frame:
            raise refusal(frame["error"])
        if "done" in frame:
            self.reply = Reply.of(self._events, frame["done"])
        elif "committed" in frame:
            event = Event.from_wire(frame["committed"])
            self._events.append(event)
            if event.kind == "Generated" and not self._provisional:
                return Chunk(name_of(event.channel, CHANNEL_NAMES), event.text)
        elif "provisional" in frame and self._provisional:
            ahead = frame["provisional"]
            return Chunk(name_of(ahead["channel"], CHANNEL_NAMES), ahead["text"])
        return None

    def _abandon(self, frames: Frames) -> None:
        """Cancel what still runs and wait for its end; a daemon that is gone has nothing to cancel."""
        if self.reply is not None:
            return
        try:
            self._session.cancel()
            for frame in frames:
                self._take(frame)
                if "done" in frame:
                    return
        except SuperfluidError:
            pass
