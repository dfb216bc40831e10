"""What one connection of the session API says, whatever carries it (spec: wire-facts, sections 1, 8.8 and 8.12).

A connection runs one request at a time, in order; subscriptions deliver between its replies.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import trio

from superfluid.daemon.activity import Activity
from superfluid.daemon.bus import Ended, Provisional, Subscription
from superfluid.daemon.engine.generation import Generation
from superfluid.daemon.feeds.asking import Answering, Question
from superfluid.daemon.use_cases import UseCases
from superfluid.protocol import requests, responses
from superfluid.protocol.records import Event, size_of
from superfluid.protocol.refusals import Refusal, SessionPurged, UnknownSubscription
from superfluid.protocol.requests import Request
from superfluid.protocol.responses import Response
from superfluid.transports.dispatch import answer, ends_with_its_client
from superfluid.transports.following import Following

_T = TypeVar("_T")

MANY = 512
"""Events in a reply from which on it is encoded in a thread."""

LONG = 1 << 15
"""Likewise token ids and characters in its events."""


class Conversation:
    """The requests and subscriptions of one connection.

    `send` takes one response at a time from several tasks, waits for as long as the client is slow, and raises
    BrokenResourceError once it has left. `gone` returns then; it is asked while a generation runs, or what
    `ends_with_its_client`.
    """

    def __init__(
        self,
        cases: UseCases,
        activity: Activity,
        send: Callable[[Response], Awaitable[None]],
        gone: Callable[[], Awaitable[None]],
    ) -> None:
        self._cases = cases
        self._activity = activity
        self._send = send
        self._gone = gone
        self._bucket = cases.completing.bucket()
        self._subscriptions: dict[int, Subscription] = {}
        self._following = Following(cases, activity, send)

    async def handle(self, request: Request, nursery: trio.Nursery) -> None:
        """Answer one request to its last response; subscriptions live on in `nursery`."""
        match request:
            case requests.Generate(session, max_tokens):
                await self._generate(session, max_tokens)
            case requests.Subscribe(session, cursor, provisional):
                await self._subscribe(session, cursor, provisional, nursery)
            case requests.FeedSubscribe(session):
                await self._follow(session, nursery)
            case requests.Unsubscribe(sub):
                await self._unsubscribe(sub)
            case requests.Ask():
                await self._ask(request)
            case _ if ends_with_its_client(request):
                await self._send(await self._unless_gone(lambda: answer(self._cases, request, self._bucket)))
            case _:
                await self._send(await answer(self._cases, request, self._bucket))

    def close(self) -> None:
        """The connection is over: detach its subscriptions."""
        for subscription in self._subscriptions.values():
            self._cases.reading.unsubscribe(subscription)

    # --- generations ----------------------------------------------------------------------------------------------

    async def _generate(self, session: int, max_tokens: int) -> None:
        try:
            async with self._cases.generating.generate(session, max_tokens) as started:
                if isinstance(started, Generation):
                    await self._unless_gone(lambda: self._stream_deltas(started))
                    if started.refusal is not None:
                        raise started.refusal
                summary = started.summary if isinstance(started, Generation) else started
                assert summary is not None
        except Refusal as refusal:
            await self._send(responses.Err(str(refusal)))
            return
        await self._send(responses.Generated(summary.events, summary.tokens, summary.finish, summary.warm))

    async def _stream_deltas(self, generation: Generation) -> None:
        async for event in generation.deltas:
            await self._send(responses.Delta(event))
        await generation.ended.wait()

    async def _ask(self, request: requests.Ask) -> None:
        question = Question(
            request.prompt,
            request.max_tokens,
            request.params,
            request.stop,
            request.fast_answer,
            request.gap_threshold,
        )
        try:
            async with self._cases.asking.ask(request.session, question) as answering:
                await self._unless_gone(lambda: self._stream_pieces(answering))
                said = answering.answer
        except Refusal as refusal:
            await self._send(responses.Err(str(refusal)))
            return
        await self._send(said)

    async def _stream_pieces(self, answering: Answering) -> None:
        async for piece in answering.pieces():
            await self._send(responses.AskPiece(piece))

    async def _unless_gone(self, work: Callable[[], Awaitable[_T]]) -> _T:
        """What `work` gives; where the client hangs up meanwhile, stop it and raise BrokenResourceError."""
        done: list[_T] = []

        async def look() -> None:
            await self._gone()
            nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(look)
            done.append(await work())
            nursery.cancel_scope.cancel()
        if not done:
            raise trio.BrokenResourceError
        return done[0]

    # --- subscriptions --------------------------------------------------------------------------------------------

    async def _subscribe(self, session: int, cursor: int, provisional: bool, nursery: trio.Nursery) -> None:
        try:
            subscription = self._cases.reading.subscribe(session, provisional)
        except Refusal as refusal:
            await self._send(responses.Err(str(refusal)))
            return
        self._subscriptions[subscription.id] = subscription
        await self._send(responses.Subscribed(subscription.id))
        nursery.start_soon(self._deliver, subscription, cursor)

    async def _deliver(self, subscription: Subscription, cursor: int) -> None:
        with self._activity:
            await self._deliver_all(subscription, cursor)

    async def _deliver_all(self, subscription: Subscription, cursor: int) -> None:
        reason = "publisher closed"
        try:
            async for message in self._cases.reading.follow(subscription, cursor):
                match message:
                    case Provisional(channel, text):
                        await self._send(responses.SubProvisional(subscription.id, channel, text))
                    case Ended():
                        reason = message.reason
                    case _:
                        await self._send(responses.SubEvent(subscription.id, message))
        except SessionPurged:
            reason = "purged"
        except Refusal as refusal:
            reason = str(refusal)
        self._subscriptions.pop(subscription.id, None)
        self._cases.reading.unsubscribe(subscription)
        await self._send(responses.SubEnded(subscription.id, reason))

    async def _follow(self, session: int, nursery: trio.Nursery) -> None:
        try:
            await self._following.start(session, nursery)
        except Refusal as refusal:
            await self._send(responses.Err(str(refusal)))

    async def _unsubscribe(self, sub: int) -> None:
        if self._following.stop(sub):
            await self._send(responses.Unsubscribed())
            return
        subscription = self._subscriptions.get(sub)
        if subscription is None:
            await self._send(responses.Err(str(UnknownSubscription(sub))))
            return
        self._cases.reading.unsubscribe(subscription)
        await self._send(responses.Unsubscribed())


def is_large(response: Response) -> bool:
    """Whether to encode it takes so long that it is to be done in a thread."""
    events: Sequence[Event]
    match response:
        case responses.Committed(event) | responses.Delta(event) | responses.SubEvent(event=event):
            events = (event,)
        case responses.Events(events) | responses.Generated(events=events):
            pass
        case responses.Inspection(inspection):
            events = inspection.events
        case _:
            return False
    return len(events) >= MANY or sum(size_of(event.body) for event in events) >= LONG
