"""A route that generates: from the body to the last byte of the reply, or to the client's leaving."""

from __future__ import annotations

import json
import secrets
import time
from dataclasses import dataclass
from typing import Any

import trio
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from superfluid.daemon.config import HttpConfig
from superfluid.daemon.use_cases import UseCases
from superfluid.protocol.codes import QOS_NAMES, qos_named
from superfluid.transports.http import body
from superfluid.transports.http.choices import Admitted, Choice, Failed, Form, Happening, Order, Piece, draw, usage
from superfluid.transports.http.errors import ApiError
from superfluid.transports.http.sampling import SESSION_HEADER

QOS_HEADER = "x-superfluid-qos"

QUIET = 10.0
"""Seconds without news after which a stream says that it is still there."""

THREADED = 1 << 16
"""Bytes of a body from which on it is parsed in a thread."""

HAPPENINGS = 64

_STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


class Answering:
    """The ASGI endpoint of one form."""

    def __init__(self, form: Form, cases: UseCases, config: HttpConfig) -> None:
        self._form = form
        self._cases = cases
        self._config = config

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Raises ApiError before the first byte; after it, errors are part of the stream."""
        headers = Headers(scope=scope)
        if SESSION_HEADER in headers:
            raise ApiError(f"{SESSION_HEADER}: this server does not do sessions over HTTP yet", param=SESSION_HEADER)
        qos = self._qos(headers)
        try:
            data = await body.read(receive)
        except body.Gone:
            return
        if len(data) < THREADED:
            order = self._order(data, qos)
        else:
            order = await trio.to_thread.run_sync(self._order, data, qos)
        reply = await self._draw(order, receive, send)
        if reply is not None:
            await reply(scope, receive, send)

    async def _draw(self, order: Order, receive: Receive, send: Send) -> ASGIApp | None:
        """Draw and stream; what is left to say once all is drawn, None where the client has left. Raises ApiError.

        The last word is not said in here: it may close the connection, and that is no leaving.
        """
        last: ASGIApp | None = None
        fault: ApiError | None = None
        sending, happenings = trio.open_memory_channel[Happening](HAPPENINGS)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_cancel_when_gone, receive, nursery.cancel_scope)
            for index, ask in enumerate(order.asks):
                nursery.start_soon(draw, self._cases, index, ask, self._form.prompt_field, sending)
            reply = _Reply(self._form, order, self._cases.conversing.model.name, happenings)
            try:
                last = await (reply.stream(send) if order.stream else reply.whole())
            except ApiError as refused:  # raised below, as itself: a nursery would wrap it
                fault = refused
            nursery.cancel_scope.cancel()
        if fault is not None:
            raise fault
        return last

    def _order(self, data: bytes, qos: int) -> Order:
        vocabulary = self._cases.conversing.model.vocabulary.size
        return self._form.parse(body.parse(data), self._config, vocabulary, qos)

    def _qos(self, headers: Headers) -> int:
        name = headers.get(QOS_HEADER)
        if name is None or not self._config.qos_header:
            return self._config.default_qos
        qos = qos_named(name)
        if qos is None:
            raise ApiError(f"{QOS_HEADER}: expected one of {', '.join(QOS_NAMES)}", param=QOS_HEADER)
        return qos


async def _cancel_when_gone(receive: Receive, scope: trio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


class _Reply:
    """The reply to one order, told in a form."""

    def __init__(
        self, form: Form, order: Order, model: str, happenings: trio.MemoryReceiveChannel[Happening]
    ) -> None:
        self._form = form
        self._order = order
        self._happenings = happenings
        self._finished: dict[int, Choice] = {}
        self._id = form.id_prefix + secrets.token_hex(12)
        self._head = {"id": self._id, "created": int(time.time()), "model": model}

    @property
    def _complete(self) -> bool:
        return len(self._finished) == len(self._order.asks)

    def _usage(self) -> dict[str, Any]:
        choices = [self._finished[index] for index in range(len(self._order.asks))]
        return usage(choices, self._order.prompts)

    # --- in one piece ---------------------------------------------------------------------------------------------

    async def whole(self) -> ASGIApp:
        """Raises ApiError where a choice fails: then there is no reply at all."""
        while not self._complete:
            match await self._happenings.receive():
                case Failed(fault):
                    raise fault
                case Choice() as choice:
                    self._finished[choice.index] = choice
        choices = [
            {"index": index, **self._form.whole(choice), "finish_reason": choice.reason}
            for index, choice in sorted(self._finished.items())
        ]
        reply = {**self._head, "object": self._form.whole_object, "choices": choices, "usage": self._usage()}
        return JSONResponse(reply, headers={"x-request-id": self._id})

    # --- piece by piece -------------------------------------------------------------------------------------------

    async def stream(self, send: Send) -> ASGIApp:
        """Say everything but the end, which is returned. Raises ApiError where a choice fails before a byte."""
        early = await self._before_the_first_byte()
        headers = [*_STREAM_HEADERS, (b"x-request-id", self._id.encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        frames = [
            self._chunk(index, opening)
            for index in range(len(self._order.asks))
            if (opening := self._form.opening()) is not None
        ]
        frames += [frame for happening in early for frame in self._frames(happening)]
        while True:
            if frames:
                await _say(send, b"".join(frames))
            if self._complete:
                break
            batch = await self._batch()
            failed = next((happening for happening in batch if isinstance(happening, Failed)), None)
            if failed is not None:
                return _End(_frame(failed.fault.envelope()) + _DONE)
            frames = [frame for happening in batch for frame in self._frames(happening)] if batch else [b":\n\n"]
        if not self._order.include_usage:
            return _End(_DONE)
        return _End(_frame({**self._chunk_head(), "choices": [], "usage": self._usage()}) + _DONE)

    async def _before_the_first_byte(self) -> list[Happening]:
        """What happens until every choice is admitted and one has something to say, or is quiet for long."""
        early: list[Happening] = []
        admitted = 0
        while admitted < len(self._order.asks) or not early:
            batch = await self._batch()
            if not batch and admitted == len(self._order.asks):
                break
            for happening in batch:
                if isinstance(happening, Failed):
                    raise happening.fault
                if isinstance(happening, Admitted):
                    admitted += 1
                else:
                    early.append(happening)
        return early

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
                return [self._chunk(index, self._form.piece(text))]
            case Choice() as choice:
                self._finished[choice.index] = choice
                return [self._chunk(choice.index, self._form.closing(), choice.reason)]
            case _:
                return []

    def _chunk_head(self) -> dict[str, Any]:
        return {**self._head, "object": self._form.chunk_object}

    def _chunk(self, index: int, content: dict[str, Any], reason: str | None = None) -> bytes:
        chunk = {**self._chunk_head(), "choices": [{"index": index, **content, "finish_reason": reason}]}
        if self._order.include_usage:
            chunk["usage"] = None
        return _frame(chunk)


_DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class _End:
    """The last frames of a stream."""

    frames: bytes

    async def __call__(self, _: Scope, __: Receive, send: Send) -> None:
        await _say(send, self.frames, last=True)


async def _say(send: Send, data: bytes, *, last: bool = False) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": not last})


def _frame(content: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(content, ensure_ascii=True, separators=(",", ":")).encode() + b"\n\n"
