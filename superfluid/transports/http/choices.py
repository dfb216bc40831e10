"""The choices of a reply: what a request orders, how each is drawn, and the form in which a route tells them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import trio

from superfluid.daemon.config import HttpConfig
from superfluid.daemon.conversing import Ask
from superfluid.daemon.use_cases import UseCases
from superfluid.protocol.codes import Finish
from superfluid.protocol.refusals import Refusal, ShuttingDown
from superfluid.transports.http.errors import ApiError, from_refusal
from superfluid.transports.http.fields import Fields


@dataclass(frozen=True, slots=True)
class Order:
    """What a request wants: an ask for each choice, `prompts` groups of equal length, each on one prompt."""

    asks: tuple[Ask, ...]
    prompts: int
    stream: bool
    include_usage: bool


@dataclass(frozen=True, slots=True)
class Choice:
    """One finished reply."""

    index: int
    text: str
    finish: Finish
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int

    @property
    def reason(self) -> str:
        return "length" if self.finish is Finish.LENGTH else "stop"


class Form(ABC):
    """How a route reads its request and writes its reply."""

    prompt_field: ClassVar[str]
    id_prefix: ClassVar[str]
    whole_object: ClassVar[str]
    chunk_object: ClassVar[str]

    @abstractmethod
    def parse(self, fields: Fields, config: HttpConfig, vocabulary: int, qos: int) -> Order:
        """Raises ApiError naming the field."""

    @abstractmethod
    def whole(self, choice: Choice) -> dict[str, Any]:
        """What a finished choice holds beside its index and its finish reason."""

    @abstractmethod
    def opening(self) -> dict[str, Any] | None:
        """What the first chunk of a choice holds; None where there is none."""

    @abstractmethod
    def piece(self, text: str) -> dict[str, Any]: ...

    @abstractmethod
    def closing(self) -> dict[str, Any]:
        """What the chunk with the finish reason holds."""


# --- what happens to a choice -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Admitted:
    """It waits for a lane, or has one: it will not be refused any more."""

    index: int


@dataclass(frozen=True, slots=True)
class Piece:
    index: int
    text: str


@dataclass(frozen=True, slots=True)
class Failed:
    fault: ApiError


Happening = Admitted | Piece | Choice | Failed


async def draw(
    cases: UseCases, index: int, ask: Ask, prompt_field: str, happenings: trio.MemorySendChannel[Happening]
) -> None:
    """Draw one choice and tell what happens. Being cancelled cancels it, in the queue and at any later stage.

    What is slow to take happenings slows nothing but this: the generation keeps its pieces, and ends itself where
    they become too many.
    """
    try:
        async with cases.conversing.reply(ask) as reply:
            await happenings.send(Admitted(index))
            async for text in reply.pieces():
                if text:
                    await happenings.send(Piece(index, text))
            if reply.finish is Finish.CANCELLED:
                raise ShuttingDown if cases.generating.closing else _too_slow()
            await happenings.send(
                Choice(
                    index=index,
                    text=reply.text,
                    finish=reply.finish,
                    prompt_tokens=reply.prompt_tokens,
                    cached_tokens=reply.cached_tokens,
                    completion_tokens=reply.completion_tokens,
                )
            )
    except ApiError as fault:
        await happenings.send(Failed(fault))
    except Refusal as refusal:
        await happenings.send(Failed(from_refusal(refusal, prompt_field)))


def _too_slow() -> ApiError:
    return ApiError("the reply was cancelled, since it was not read in time", status=503, code="reader_too_slow")


def usage(choices: Sequence[Choice], prompts: int) -> dict[str, Any]:
    """OpenAI's usage of all choices, in order; a prompt counts once, however many choices it has."""
    each = len(choices) // prompts
    groups = [choices[start : start + each] for start in range(0, len(choices), each)]
    prompt_tokens = sum(group[0].prompt_tokens for group in groups)
    completion_tokens = sum(choice.completion_tokens for choice in choices)
    cached = sum(min(choice.cached_tokens for choice in group) for group in groups)
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
