"""`/web/stream`: one generation as server-sent events.

What is said comes from the bus, so that provisional text and commits keep their order. It goes into an outbox that
never makes the generation wait; one that runs over ends the generation, as the client's leaving does.
"""

from __future__ import annotations

import json
from collections import deque
from typing import Any

import trio
from starlette.types import Receive, Scope, Send

from superfluid.daemon.bus import Ended, Provisional, Subscription
from superfluid.daemon.engine.generation import Generation, Summary
from superfluid.daemon.use_cases import UseCases
from superfluid.protocol import jsonform, records, requests
from superfluid.protocol.codes import Channel
from superfluid.protocol.errors import DecodeError
from superfluid.protocol.records import Event
from superfluid.protocol.refusals import Refusal
from superfluid.transports.http.frames import DONE, HEADERS, STILL_HERE, say
from superfluid.transports.http.leaving import cancel_when_gone
from superfluid.transports.web import bodies

QUIET = 15.0
"""Seconds without news after which a stream says that it is still there."""

MOST_BYTES = 16 << 20
"""What a client may leave unread before the generation is cancelled."""

SHOWN = (records.Generated, records.ToolUse, records.ToolResult, records.ToolParseFailure)
"""What is told of the events that are committed meanwhile."""


async def stream(cases: UseCases, scope: Scope, receive: Receive, send: Send) -> None:
    """Raises Refused and `body.Gone`. Whatever the daemon refuses is an event of the stream."""
    order, provisional = await bodies.read(scope, receive, _order)
    outbox = Outbox()
    finished = False
    async with trio.open_nursery() as nursery:
        nursery.start_soon(cancel_when_gone, receive, nursery.cancel_scope)
        nursery.start_soon(_run, cases, order, Frames(outbox, provisional))
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        while (data := await outbox.take()) is not None:
            await say(send, data)
        finished = True
        nursery.cancel_scope.cancel()
    if finished:  # not said in there: it may close the connection, and that is no leaving
        await say(send, DONE, last=True)


def _order(value: Any) -> tuple[requests.Generate, bool]:
    order: requests.Generate = jsonform.from_json(requests.Generate, value)
    provisional = value.get("provisional", False)
    if not isinstance(provisional, bool):
        raise DecodeError(".provisional: expected true or false")
    return order, provisional


async def _run(cases: UseCases, order: requests.Generate, frames: Frames) -> None:
    """Generate, and tell `frames` all of it."""
    try:
        async with cases.generating.generate(order.session, order.max_tokens) as started:
            if isinstance(started, Generation):
                await _follow(cases, started, frames)
                if started.refusal is not None:
                    raise started.refusal
            summary = started.summary if isinstance(started, Generation) else started
            assert summary is not None
        frames.done(summary)
    except Refusal as refusal:
        frames.failed(str(refusal))
    frames.outbox.close()


async def _follow(cases: UseCases, generation: Generation, frames: Frames) -> None:
    """Pass on what is published until the generation has ended, and everything that was published before that."""
    # Nothing was drawn yet: what a generation draws is published by a task that has not run since it was admitted.
    subscription = cases.reading.subscribe(generation.session, provisional=frames.provisional)
    try:
        async with trio.open_nursery() as nursery:

            async def end_with_generation() -> None:
                await generation.ended.wait()
                subscription.end("ended")

            nursery.start_soon(end_with_generation)
            await _pass_on(cases, subscription, generation, frames)
            nursery.cancel_scope.cancel()
    finally:
        cases.reading.unsubscribe(subscription)
    await generation.ended.wait()
    if generation.summary is not None:
        frames.catch_up(generation.summary.events)


async def _pass_on(cases: UseCases, subscription: Subscription, generation: Generation, frames: Frames) -> None:
    while not isinstance(message := await subscription.receive(), Ended):
        match message:
            case Provisional(channel, text):
                frames.provisional_text(channel, text)
            case Event():
                frames.committed(message)
        if frames.outbox.bytes > MOST_BYTES:
            cases.generating.abandon(generation)


class Frames:
    """What a generation says, in the events of the stream.

    With `provisional`, all text of the channels 0 and 1 comes provisionally ahead of its commit, so that what came
    is what is committed: text that was never shown, as the rest of a character that the end cut off, is shown then.
    """

    def __init__(self, outbox: Outbox, provisional: bool) -> None:
        self.outbox = outbox
        self.provisional = provisional
        self._ahead: dict[int, str] = {}
        self._told: set[int] = set()

    def provisional_text(self, channel: int, text: str) -> None:
        if channel == Channel.TOOL_CALL or not text:
            return
        self._ahead[channel] = self._ahead.get(channel, "") + text
        self.outbox.put({"provisional": {"channel": int(channel), "text": text}})

    def committed(self, event: Event) -> None:
        if not isinstance(event.body, SHOWN):
            return
        if self.provisional and isinstance(event.body, records.Generated):
            self._level(event.body)
        self._told.add(event.event_id)
        self.outbox.put({"committed": jsonform.to_json(Event, event)})

    def catch_up(self, events: tuple[Event, ...]) -> None:
        """Tell what the bus did not, where more was published at once than it holds."""
        for event in events:
            if event.event_id not in self._told:
                self.committed(event)

    def done(self, summary: Summary) -> None:
        fields = {"tokens_generated": summary.tokens, "finish": summary.finish, "warm_prefix": summary.warm}
        self.outbox.put({"done": fields})

    def failed(self, message: str) -> None:
        self.outbox.put({"error": message})

    def _level(self, record: records.Generated) -> None:
        """Show what of a record's text was not shown yet, and count it as committed."""
        ahead = self._ahead.get(record.channel, "")
        if record.text.startswith(ahead):
            self.provisional_text(record.channel, record.text[len(ahead) :])
            ahead = record.text
        self._ahead[record.channel] = ahead[len(record.text) :] if ahead.startswith(record.text) else ""


class Outbox:
    """Frames that wait for the client to read. `put` never waits."""

    def __init__(self) -> None:
        self.bytes = 0
        self._frames: deque[bytes] = deque()
        self._closed = False
        self._news = trio.Event()

    def put(self, content: dict[str, Any]) -> None:
        frame = b"data: " + json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"
        self.bytes += len(frame)
        self._frames.append(frame)
        self._news.set()

    def close(self) -> None:
        """No more after what is there."""
        self._closed = True
        self._news.set()

    async def take(self) -> bytes | None:
        """Everything that waits, a comment where nothing came for long, None at the end."""
        while not self._frames:
            if self._closed:
                return None
            self._news = trio.Event()
            with trio.move_on_after(QUIET) as waiting:
                await self._news.wait()
            if waiting.cancelled_caught:
                return STILL_HERE
        data = b"".join(self._frames)
        self._frames.clear()
        self.bytes = 0
        return data
