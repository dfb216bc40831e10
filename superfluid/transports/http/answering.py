"""A route that generates: from the body to the last byte of the reply, or to the client's leaving."""

from __future__ import annotations

from typing import Generic

import trio
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from superfluid.daemon.config import HttpConfig
from superfluid.daemon.use_cases import UseCases
from superfluid.protocol.codes import QOS_NAMES, qos_named
from superfluid.transports.http import body
from superfluid.transports.http.choices import (
    A,
    Admitted,
    Choice,
    Failed,
    Form,
    Happening,
    Order,
    Piece,
    Teller,
    draw,
)
from superfluid.transports.http.errors import ApiError
from superfluid.transports.http.frames import HEADERS, STILL_HERE, End, say
from superfluid.transports.http.leaving import cancel_when_gone
from superfluid.transports.http.naming import SESSION_HEADER, Target, found, named
from superfluid.transports.http.traffic import Traffic

QOS_HEADER = "x-superfluid-qos"

QUIET = 10.0
"""Seconds without news after which a stream says that it is still there."""

HAPPENINGS = 64


class Answering(Generic[A]):
    """The ASGI endpoint of one form."""

    def __init__(self, form: Form[A], cases: UseCases, config: HttpConfig, traffic: Traffic) -> None:
        self._form = form
        self._cases = cases
        self._config = config
        self._traffic = traffic

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Raises ApiError before the first byte; after it, errors are part of the stream."""
        headers = Headers(scope=scope)
        target = self._target(scope, headers)
        qos = asked_class(headers, self._config)
        try:
            order = await self._order(scope, receive, qos)
        except body.Gone:
            return
        if target is not None and len(order.asks) > 1:
            raise ApiError("n: a turn on a session has one reply", param="n", code="invalid_value")
        last = await self._draw(order, target, receive, send)
        if last is not None:
            await last(scope, receive, send)

    def _target(self, scope: Scope, headers: Headers) -> Target | None:
        """The session in the path or in the headers, None where it is in neither. Raises ApiError."""
        key = scope["path_params"].get("session") or named(headers)
        if key is None:
            return None
        if not self._form.on_session:
            raise ApiError(f"{SESSION_HEADER}: this route has no turns on sessions", param=SESSION_HEADER)
        return found(self._cases, key)

    async def _draw(self, order: Order[A], target: Target | None, receive: Receive, send: Send) -> ASGIApp | None:
        """Draw and stream; what is left to say once all is drawn, None where the client has left. Raises ApiError.

        The last word is not said in here: it may close the connection, and that is no leaving.
        """
        last: ASGIApp | None = None
        fault: ApiError | None = None
        sending, happenings = trio.open_memory_channel[Happening](HAPPENINGS)
        self._traffic.started += 1
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cancel_when_gone, receive, nursery.cancel_scope)
            for index, ask in enumerate(order.asks):
                nursery.start_soon(draw, self._form, self._cases, index, ask, sending, target)
            teller = self._form.teller(order, self._cases.conversing.model.name, target)
            reply = _Reply(teller, len(order.asks), happenings)
            try:
                last = await (reply.stream(send) if order.stream else reply.whole())
            except ApiError as refused:  # raised below, as itself: a nursery would wrap it
                fault = refused
            nursery.cancel_scope.cancel()
        if reply.complete:
            self._traffic.answered(reply.choices, on_session=target is not None)
        elif fault is not None or last is not None:
            self._traffic.failed += 1
        else:
            self._traffic.cancelled += 1
        if fault is not None:
            raise fault
        return last

    async def _order(self, scope: Scope, receive: Receive, qos: int) -> Order[A]:
        """What the body orders. Raises ApiError and body.Gone."""
        vocabulary = self._cases.conversing.model.vocabulary.size
        return await body.understood(
            await body.read(scope, receive),
            lambda data: self._form.parse(body.parse(data), self._config, vocabulary, qos),
        )


def asked_class(headers: Headers, config: HttpConfig) -> int:
    """The scheduling class of a request. Raises ApiError."""
    name = headers.get(QOS_HEADER)
    if name is None or not config.qos_header:
        return config.default_qos
    qos = qos_named(name)
    if qos is None:
        raise ApiError(f"{QOS_HEADER}: expected one of {', '.join(QOS_NAMES)}", param=QOS_HEADER)
    return qos


class _Reply:
    """The reply to one order of so many choices, as it happens."""

    def __init__(self, teller: Teller, count: int, happenings: trio.MemoryReceiveChannel[Happening]) -> None:
        self._teller = teller
        self._count = count
        self._happenings = happenings
        self._finished: dict[int, Choice] = {}
        self._prompt_tokens = 0
        self._kept: dict[int, int] = {}

    @property
    def headers(self) -> dict[str, str]:
        """Final once all choices are admitted; with the sessions that are kept, in the order of the choices."""
        kept = ", ".join(str(session) for _, session in sorted(self._kept.items()))
        return {**self._teller.headers, **({SESSION_HEADER: kept} if kept else {})}

    @property
    def complete(self) -> bool:
        return len(self._finished) == self._count

    @property
    def choices(self) -> list[Choice]:
        """All, in order, once it is complete."""
        return [self._finished[index] for index in range(self._count)]

    # --- in one piece ---------------------------------------------------------------------------------------------

    async def whole(self) -> ASGIApp:
        """Raises ApiError where a choice fails: then there is no reply at all."""
        while not self.complete:
            match await self._happenings.receive():
                case Failed(fault):
                    raise fault
                case Admitted() as admitted:
                    self._note(admitted)
                case Choice() as choice:
                    self._finished[choice.index] = choice
        return JSONResponse(self._teller.whole(self.choices), headers=self.headers)

    # --- piece by piece -------------------------------------------------------------------------------------------

    async def stream(self, send: Send) -> ASGIApp:
        """Say everything but the end, which is returned. Raises ApiError where a choice fails before a byte."""
        early = await self._before_the_first_byte()
        headers = [*HEADERS, *((name.encode(), value.encode()) for name, value in self.headers.items())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        frames = [*self._teller.opening(self._prompt_tokens)]
        frames += [frame for happening in early for frame in self._frames(happening)]
        while True:
            if data := b"".join(frames):
                await say(send, data)
            if self.complete:
                return End(self._teller.last(self.choices))
            batch = await self._batch()
            failed = next((happening for happening in batch if isinstance(happening, Failed)), None)
            if failed is not None:
                return End(self._teller.failed(failed.fault))
            frames = [frame for happening in batch for frame in self._frames(happening)] if batch else [STILL_HERE]

    async def _before_the_first_byte(self) -> list[Happening]:
        """What happens until every choice is admitted and one has something to say, or is quiet for long."""
        early: list[Happening] = []
        admitted = 0
        while admitted < self._count or not early:
            batch = await self._batch()
            if not batch and admitted == self._count:
                break
            for happening in batch:
                match happening:
                    case Failed(fault):
                        raise fault
                    case Admitted():
                        admitted += 1
                        self._note(happening)
                    case _:
                        early.append(happening)
        return early

    def _note(self, admitted: Admitted) -> None:
        self._prompt_tokens += admitted.prompt_tokens
        if admitted.kept is not None:
            self._kept[admitted.index] = admitted.kept

    async def _batch(self) -> list[Happening]:
        """Everything that has happened, at least one thing; nothing after `QUIET` seconds without."""
        batch: list[Happening] = []
        with trio.move_on_after(QUIET):
            batch.append(await self._happenings.receive())
        while batch:
            try:
                batch.append(self._happenings.receive_nowait())
            except trio.WouldBlock:
                break
        return batch

    def _frames(self, happening: Happening) -> list[bytes]:
        match happening:
            case Piece(index, text):
                return [self._teller.piece(index, text)]
            case Choice() as choice:
                self._finished[choice.index] = choice
                return [self._teller.closing(choice)]
            case _:
                return []
