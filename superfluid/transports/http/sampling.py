"""The fields that chat and completion requests share: sampling, limits, streaming, and what is not served yet."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace

from superfluid.daemon.config import HttpConfig
from superfluid.model.stops import LONGEST_STOP, MOST_STOPS
from superfluid.protocol.records import GenParams
from superfluid.protocol.ticks import LaneOptions
from superfluid.transports.http.errors import ApiError
from superfluid.transports.http.fields import Fields, number, unsupported, wrong
from superfluid.transports.http.naming import SESSION_HEADER

MOST_CHOICES = 8
MOST_BIASES = 4096


@dataclass(frozen=True, slots=True)
class Defaults:
    """What a dialect samples with where neither the request nor the server's settings say."""

    temperature: float
    top_p: float


OPENAI = Defaults(0.7, 0.95)
LAYERED = Defaults(0.6, 0.9)
"""Of the routes of streaming sessions and of messages (spec: streaming-facts, 1.1)."""

_U64 = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a request wants of every choice. `vocabulary` is the number of tokens that there are."""

    params: GenParams
    options: LaneOptions
    stops: tuple[str, ...]
    choices: int
    stream: bool
    include_usage: bool

    def choice(self, place: int) -> GenParams:
        """The parameters of one choice: each has a seed of its own, the first the one that was asked for."""
        return replace(self.params, seed=(self.params.seed + place) & _U64)


def wanted(fields: Fields, config: HttpConfig, vocabulary: int) -> Wanted:
    """Read the shared fields. Raises ApiError."""
    refuse_session_id(fields)
    stream = fields.flag("stream")
    return Wanted(
        params=params(fields, config, OPENAI),
        options=options(fields, vocabulary),
        stops=stops(fields, "stop"),
        choices=fields.whole("n", 1, MOST_CHOICES) or 1,
        stream=stream,
        include_usage=_include_usage(fields, stream),
    )


def refuse_session_id(fields: Fields) -> None:
    """A request that named its session in its body would otherwise run without it. Raises ApiError."""
    if fields.raw("session_id") is not None:
        raise ApiError(f"session_id: a session is named by the header {SESSION_HEADER}", param="session_id")


def params(fields: Fields, config: HttpConfig, defaults: Defaults) -> GenParams:
    """How to draw. Raises ApiError."""

    def or_else(value: float | None, *others: float | None) -> float:
        return next(found for found in (value, *others) if found is not None)

    # Drawn anew where none is given (decision 14); negative ones wrap round, as in C.
    seed = fields.whole("seed", -(1 << 63), _U64)
    top_k = fields.whole("top_k", -1, (1 << 31) - 1)
    return GenParams(
        temperature=or_else(fields.number("temperature", 0, 2), config.temperature, defaults.temperature),
        top_p=or_else(fields.number("top_p", 0, 1), config.top_p, defaults.top_p),
        min_p=or_else(fields.number("min_p", 0, 1), config.min_p),
        top_k=config.top_k if top_k is None else max(0, top_k),
        seed=secrets.randbits(64) if seed is None else seed & _U64,
    )


def options(fields: Fields, vocabulary: int) -> LaneOptions:
    """What else shapes the draw. `vocabulary` is the number of tokens that there are. Raises ApiError."""
    repeat = fields.number("repeat_penalty", 0.01, 2)
    return LaneOptions(
        ignore_end=fields.flag("ignore_eos"),
        repeat_penalty=1.0 if repeat is None else repeat,
        frequency_penalty=fields.number("frequency_penalty", -2, 2) or 0.0,
        presence_penalty=fields.number("presence_penalty", -2, 2) or 0.0,
        logit_bias=_biases(fields, vocabulary),
    )


def _biases(fields: Fields, vocabulary: int) -> tuple[tuple[int, float], ...]:
    biases = fields.object("logit_bias")
    if biases is None:
        return ()
    if len(biases.items()) > MOST_BIASES:
        raise wrong("logit_bias", f"at most {MOST_BIASES} tokens", dict(biases.items()))
    found: dict[int, float] = {}
    for name, bias in biases.items():
        if not (name.isascii() and name.isdigit() and len(name) <= 10 and int(name) < vocabulary):
            raise wrong("logit_bias", f"token ids below {vocabulary} as names", name)
        found[int(name)] = number(bias, biases.param(name), -100, 100)
    return tuple(found.items())


def stops(fields: Fields, name: str) -> tuple[str, ...]:
    """The texts before which a reply ends. Raises ApiError."""
    expected = f"a string, or an array of at most {MOST_STOPS} strings"
    value = fields.raw(name)
    if value is None:
        return ()
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, list) or len(found) > MOST_STOPS:
        raise wrong(name, expected, value)
    for place, stop in enumerate(found):
        if not isinstance(stop, str) or not 0 < len(stop) <= LONGEST_STOP:
            at = name if isinstance(value, str) else f"{name}[{place}]"
            raise wrong(at, f"a string of 1 to {LONGEST_STOP} characters", stop)
    return tuple(found)


def _include_usage(fields: Fields, stream: bool) -> bool:
    options = fields.object("stream_options")
    if options is None:
        return False
    if not stream:
        raise ApiError("stream_options: only with stream true", param="stream_options", code="invalid_value")
    return options.flag("include_usage")


# --- what is not served yet ---------------------------------------------------------------------------------------


def refuse(fields: Fields, table: dict[str, tuple[str, Callable[[object], bool]]]) -> None:
    """Refuse what `table` names: a field, what it stands for, and whether a value asks for it. Raises ApiError."""
    for name, (what, asks) in table.items():
        value = fields.raw(name)
        if value is not None and asks(value):
            raise unsupported(name, what)


def anything(_: object) -> bool:
    return True


def filled(value: object) -> bool:
    return value not in ([], {}, "")


def switched_on(value: object) -> bool:
    return value is not False


STRUCTURED = "structured output"
STRUCTURED_FIELDS: dict[str, tuple[str, Callable[[object], bool]]] = {
    "response_format": (STRUCTURED, lambda value: not (isinstance(value, dict) and value.get("type") == "text")),
    **{
        name: (STRUCTURED, filled)
        for name in (
            "grammar", "json_schema", "structured_outputs",
            "guided_json", "guided_regex", "guided_choice", "guided_grammar",
        )
    },
}  # fmt: skip
"""Fields of any route that ask for output of a form. Ignored, they would give what nobody asked for."""
