"""The choices of a reply: what a request orders, how each is drawn, and the form in which a route tells them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import trio

from superfluid.daemon.config import HttpConfig
from superfluid.daemon.replies.conversing import Ask
from superfluid.daemon.use_cases import UseCases
from superfluid.protocol.codes import Finish
from superfluid.protocol.refusals import Refusal, ShuttingDown
from superfluid.transports.http.errors import ApiError, from_refusal
from superfluid.transports.http.fields import Fields
from superfluid.transports.http.naming import Target

A = TypeVar("A")
"""What is asked for one choice."""


@dataclass(frozen=True, slots=True)
class Order(Generic[A]):
    """What a request wants: an ask for each choice, `prompts` groups of equal length, each on one prompt."""

    asks: tuple[A, ...]
    prompts: int
    stream: bool
    include_usage: bool = False


@dataclass(frozen=True, slots=True)
class Choice:
    """One finished reply. `stop` is the stop string that ended it."""

    index: int
    text: str
    finish: Finish
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    stop: str | None = None

    @property
    def reason(self) -> str:
        """As OpenAI's clients read it."""
        return "length" if self.finish is Finish.LENGTH else "stop"


# --- what happens to a choice -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Admitted:
    """It waits for a lane, or has one: it will not be refused any more."""

    index: int
    prompt_tokens: int = 0
    kept: int | None = None
    """the session that stays of it"""


@dataclass(frozen=True, slots=True)
class Piece:
    index: int
    text: str


@dataclass(frozen=True, slots=True)
class Failed:
    fault: ApiError


Happening = Admitted | Piece | Choice | Failed
Sending = trio.MemorySendChannel[Happening]


# --- how a route tells it -----------------------------------------------------------------------------------------


class Teller(ABC):
    """Writes one reply. `choices` are all of it, in order."""

    headers: Mapping[str, str]

    @abstractmethod
    def whole(self, choices: Sequence[Choice]) -> dict[str, Any]:
        """The reply in one piece."""

    @abstractmethod
    def opening(self, prompt_tokens: int) -> Sequence[bytes]:
        """The first frames of a stream."""

    @abstractmethod
    def piece(self, index: int, text: str) -> bytes: ...

    @abstractmethod
    def closing(self, choice: Choice) -> bytes:
        """A choice is finished."""

    @abstractmethod
    def last(self, choices: Sequence[Choice]) -> bytes:
        """The end of a stream in which all went well."""

    @abstractmethod
    def failed(self, fault: ApiError) -> bytes:
        """The end of a stream in which something did not."""


class Form(ABC, Generic[A]):
    """How a route reads its request, has it answered and writes its reply."""

    prompt_field: ClassVar[str]
    on_session: ClassVar[bool] = True
    """whether it can be done on a session"""

    @abstractmethod
    def parse(self, fields: Fields, config: HttpConfig, vocabulary: int, qos: int) -> Order[A]:
        """Raises ApiError naming the field."""

    @abstractmethod
    def teller(self, order: Order[A], model: str, target: Target | None) -> Teller: ...

    @abstractmethod
    async def answer(self, cases: UseCases, index: int, ask: A, sending: Sending, target: Target | None) -> None:
        """Have one ask answered and tell what happens. Raises Refusal and ApiError."""

    def refused(self, refusal: Refusal, target: Target | None) -> ApiError:
        """What the daemon refuses, in the words of this route."""
        if target is not None:
            return target.refused(refusal, self.prompt_field)
        return from_refusal(refusal, self.prompt_field)


async def draw(form: Form[A], cases: UseCases, index: int, ask: A, sending: Sending, target: Target | None) -> None:
    """Draw one choice and tell what happens. Being cancelled cancels it, in the queue and at any later stage.

    What is slow to take happenings slows nothing but this: the generation keeps its pieces, and ends itself where
    they become too many.
    """
    try:
        await form.answer(cases, index, ask, sending, target)
    except ApiError as fault:
        await sending.send(Failed(fault))
    except Refusal as refusal:
        await sending.send(Failed(form.refused(refusal, target)))


async def converse(cases: UseCases, index: int, ask: Ask, sending: Sending, target: Target | None) -> None:
    """Have a conversation or a prompt continued, on a session or on none. Raises Refusal and ApiError."""
    way = cases.conversing.reply(ask) if target is None else cases.turning.reply(target.session, ask)
    async with way as reply:
        await sending.send(Admitted(index, reply.prompt_tokens, reply.kept))
        async for text in reply.pieces():
            if text:
                await sending.send(Piece(index, text))
        if reply.finish is Finish.CANCELLED:
            raise cancelled(cases, lagged=reply.lagged)
        await sending.send(
            Choice(
                index=index,
                text=reply.text,
                finish=reply.finish,
                prompt_tokens=reply.prompt_tokens,
                cached_tokens=reply.cached_tokens,
                completion_tokens=reply.completion_tokens,
                stop=reply.stop,
            )
        )


def cancelled(cases: UseCases, *, lagged: bool) -> Exception:
    """Why a reply was cancelled whose client is still there; `lagged` is whether it was too slow to take it."""
    if cases.generating.closing:
        return ShuttingDown()
    if lagged:
        message = "the reply was cancelled, since it was not read in time"
        return ApiError(message, status=503, code="reader_too_slow")
    return ApiError("the reply was cancelled by another client", status=409, code="cancelled")
