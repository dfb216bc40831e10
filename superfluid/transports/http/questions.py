"""POST /v1/sessions/{id}/generate: a question over a session that leaves no trace (spec: streaming-facts, 4)."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from superfluid.daemon.config import HttpConfig
from superfluid.daemon.feeds.asking import GAP_THRESHOLD, Question
from superfluid.daemon.use_cases import UseCases
from superfluid.protocol.codes import Finish
from superfluid.protocol.feed_responses import Answer
from superfluid.protocol.wire import shortest_single
from superfluid.transports.http import sampling
from superfluid.transports.http.choices import Admitted, Choice, Form, Order, Piece, Sending, Teller, cancelled
from superfluid.transports.http.errors import ApiError
from superfluid.transports.http.fields import Fields, wrong
from superfluid.transports.http.frames import DONE, frame
from superfluid.transports.http.naming import Target

MOST_WORDS = 4096
LARGEST_GAP = 1e9


@dataclass(frozen=True, slots=True)
class Answered(Choice):
    """A finished answer, with all that is told of it."""

    answer: Answer | None = None


class Questions(Form[Question]):
    prompt_field = "prompt"

    def parse(self, fields: Fields, config: HttpConfig, vocabulary: int, qos: int) -> Order[Question]:
        sampling.refuse(fields, sampling.STRUCTURED_FIELDS)
        fields.object("chat_template_kwargs")
        fields.text("reasoning_effort")
        gap = fields.number("gap_threshold", -LARGEST_GAP, LARGEST_GAP)
        limits = [fields.whole(name, 1) for name in ("max_tokens", "max_completion_tokens")]
        question = Question(
            prompt=fields.needed_text("prompt"),
            max_tokens=limits[0] if limits[0] is not None else limits[1],
            params=sampling.params(fields, config, sampling.LAYERED),
            stops=sampling.stops(fields, "stop"),
            fast_answer=_words(fields),
            gap_threshold=GAP_THRESHOLD if gap is None else gap,
            qos=qos,
            options=sampling.options(fields, vocabulary),
        )
        return Order((question,), prompts=1, stream=fields.flag("stream"))

    def teller(self, order: Order[Question], model: str, target: Target | None) -> Teller:
        assert target is not None, "the path names it"
        return _Told(target.key)

    async def answer(
        self, cases: UseCases, index: int, ask: Question, sending: Sending, target: Target | None
    ) -> None:
        assert target is not None, "the path names it"
        async with cases.asking.ask(target.session, ask) as answering:
            await sending.send(Admitted(index, answering.prompt_tokens))
            async for piece in answering.pieces():
                if piece:
                    await sending.send(Piece(index, piece))
            answer, context = answering.answer, answering.context
            if answer.finish == Finish.CANCELLED:
                raise cancelled(cases, lagged=answering.lagged)
            await sending.send(
                Answered(
                    index=index,
                    text=answer.text,
                    finish=Finish(answer.finish),
                    prompt_tokens=answer.prompt_tokens,
                    cached_tokens=max(0, answer.cached_tokens - context),  # what the session holds is no prompt
                    completion_tokens=answer.completion_tokens,
                    answer=answer,
                )
            )


def _words(fields: Fields) -> tuple[str, ...]:
    words = fields.array("fast_answer") or []
    if len(words) > MOST_WORDS:
        raise wrong("fast_answer", f"at most {MOST_WORDS} words", words)
    for place, word in enumerate(words):
        if not isinstance(word, str) or not word:
            raise wrong(f"fast_answer[{place}]", "a word, which is a string", word)
    return tuple(words)


class _Told(Teller):
    def __init__(self, session: str) -> None:
        identity = "genr_" + secrets.token_hex(12)
        self._head = {"id": identity, "object": "session.generation", "session_id": session}
        self.headers = {"x-request-id": identity}

    def whole(self, choices: Sequence[Choice]) -> dict[str, Any]:
        return {**self._head, "text": choices[0].text, **_rest(choices[0])}

    def opening(self, prompt_tokens: int) -> Sequence[bytes]:
        return []

    def piece(self, index: int, text: str) -> bytes:
        return frame({"text": text})

    def closing(self, choice: Choice) -> bytes:
        return b""  # the frame that says so is the last one

    def last(self, choices: Sequence[Choice]) -> bytes:
        return frame({"done": True, **self._head, **_rest(choices[0])}) + DONE

    def failed(self, fault: ApiError) -> bytes:
        return frame(fault.envelope()) + DONE


def _rest(choice: Choice) -> dict[str, Any]:
    """What is told of an answer beside its text; answers that were there cost nothing."""
    assert isinstance(choice, Answered), "questions are answered by `Questions.answer`"
    answer = choice.answer
    assert answer is not None, "and it says how"
    told: dict[str, Any] = {"finish_reason": choice.reason, "data_version": answer.data_version}
    if answer.flash_id is not None and answer.confidence is not None:
        confidence = shortest_single(answer.confidence)
        return {**told, "usage": _NOTHING, "flash": True, "flash_id": answer.flash_id, "confidence": confidence}
    if answer.logit_gap is not None:
        return {**told, "usage": _NOTHING, "speculative": True, "logit_gap": shortest_single(answer.logit_gap)}
    usage = {
        "prompt_tokens": choice.prompt_tokens,
        "completion_tokens": choice.completion_tokens,
        "total_tokens": choice.prompt_tokens + choice.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": choice.cached_tokens},
    }
    return {**told, "usage": usage}


_NOTHING = {"prompt_tokens": 0, "completion_tokens": 0}
