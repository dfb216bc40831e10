"""POST /v1/completions: raw prompts in, their continuations out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from superfluid.daemon.config import HttpConfig
from superfluid.daemon.replies.conversing import Ask
from superfluid.transports.http import sampling
from superfluid.transports.http.choices import Choice, Order
from superfluid.transports.http.chunks import OpenAiForm
from superfluid.transports.http.fields import Fields, is_token, missing, wrong

DEFAULT_TOKENS = 16
"""Length of a continuation where the request says nothing, as with OpenAI: a raw prompt has no end of turn."""

MOST_PROMPTS = 32

_REFUSED: dict[str, tuple[str, Callable[[object], bool]]] = {
    "echo": ("echo", sampling.switched_on),
    "suffix": ("suffixes", sampling.filled),
    "best_of": ("best_of", lambda value: value != 1 or value is True),
    "logprobs": ("log probabilities", sampling.anything),
    **sampling.STRUCTURED_FIELDS,
}


class Completions(OpenAiForm):
    """OpenAI's completion form. A prompt is text, in which control tokens count as such, or token ids."""

    prompt_field = "prompt"
    on_session = False
    id_prefix = "cmpl-"
    whole_object = "text_completion"
    chunk_object = "text_completion"

    def parse(self, fields: Fields, config: HttpConfig, vocabulary: int, qos: int) -> Order[Ask]:
        sampling.refuse(fields, _REFUSED)
        wanted = sampling.wanted(fields, config, vocabulary)
        fields.text("model")
        prompts = _prompts(fields, vocabulary)
        limit = fields.whole("max_tokens", 1) or DEFAULT_TOKENS
        asks = tuple(
            Ask(
                params=wanted.choice(place),
                prompt=prompt,
                max_tokens=limit,
                stops=wanted.stops,
                qos=qos,
                options=wanted.options,
            )
            for prompt in prompts
            for place in range(wanted.choices)
        )
        return Order(asks, prompts=len(prompts), stream=wanted.stream, include_usage=wanted.include_usage)

    def whole(self, choice: Choice) -> dict[str, Any]:
        return {"text": choice.text, "logprobs": None}

    def opening(self) -> dict[str, Any] | None:
        return None

    def piece(self, text: str) -> dict[str, Any]:
        return {"text": text, "logprobs": None}

    def closing(self) -> dict[str, Any]:
        return {"text": "", "logprobs": None}


def _prompts(fields: Fields, vocabulary: int) -> tuple[str | tuple[int, ...], ...]:
    expected = "a string, an array of strings, an array of token ids, or an array of such"
    value = fields.raw("prompt")
    if value is None:
        raise missing("prompt", expected)
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list):
        raise wrong("prompt", expected, value)
    if not value:
        raise wrong("prompt", "at least one prompt", value)
    if is_token(value[0]):
        return (_tokens(value, "prompt", vocabulary),)
    if len(value) > MOST_PROMPTS:
        raise wrong("prompt", f"at most {MOST_PROMPTS} prompts", value)
    return tuple(_prompt(one, f"prompt[{place}]", vocabulary) for place, one in enumerate(value))


def _prompt(value: Any, path: str, vocabulary: int) -> str | tuple[int, ...]:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return _tokens(value, path, vocabulary)
    raise wrong(path, "a string or an array of token ids", value)


def _tokens(values: list[Any], path: str, vocabulary: int) -> tuple[int, ...]:
    if not values:
        raise wrong(path, "at least one token", values)
    for place, value in enumerate(values):
        if not is_token(value) or value >= vocabulary:
            raise wrong(f"{path}[{place}]", f"a token id below {vocabulary}", value)
    return tuple(values)
