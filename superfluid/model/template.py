"""The chat template that a model file carries: Jinja source, run in a sandbox with bounds.

Templates are written for Hugging Face's renderer; what they expect there (documented under "Chat templates: writing
a template") is here: `raise_exception`, `strftime_now`, `tojson` with arguments and without HTML escapes,
`{% generation %}`, loop controls, trimmed blocks.
"""

from __future__ import annotations

import copy
import functools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import jinja2
from jinja2 import meta, nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.ext import Extension, LoopControlExtension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

MAX_SOURCE = 1 << 20
MAX_MARGIN = 1 << 20
"""characters that a template may write beyond four times what it was given"""
_MAX_ITEMS = 200_000  # of all ranges of one rendering together
_MAX_POWER = 1 << 64
_FORMAT = re.compile(r"(?:[^%]|%[-#]?[A-Za-z%])*")
# methods whose result is as long as a number says
_PADDING = frozenset(("center", "ljust", "rjust", "zfill", "expandtabs"))


OWN = frozenset(
    (
        "messages",
        "tools",
        "documents",
        "tools_in_user_message",
        "add_generation_prompt",
        "bos_token",
        "eos_token",
        "raise_exception",
        "strftime_now",
    )
)
"""Names that a rendering sets for itself."""


class TemplateError(Exception):
    """The template does not compile, refuses, or fails. `str()` is one line: its own text where it gave one."""


class ChatTemplate:
    """One compiled template. Rendering keeps no state and may be done from any thread."""

    def __init__(self, source: str, *, bos: str = "", eos: str = "") -> None:
        """`bos` and `eos` are the texts of those tokens. Raises `TemplateError` where it does not compile."""
        if len(source) > MAX_SOURCE:
            raise TemplateError(f"the chat template has {len(source)} characters, over {MAX_SOURCE}")
        self.source = source
        self._names = {"bos_token": bos, "eos_token": eos}
        self._environment = _Environment(
            trim_blocks=True, lstrip_blocks=True, extensions=[LoopControlExtension, _Generation], autoescape=False
        )
        try:
            self._template = self._environment.from_string(source)
            asked = meta.find_undeclared_variables(self._environment.parse(source))
        except Exception as error:
            raise TemplateError(_one_line(error)) from None
        self.settings = frozenset(asked) - OWN - set(self._environment.globals)
        """names that whoever asks for a reply may set, such as `enable_thinking`"""
        self.told: Mapping[str, Any] = {}
        """what was set of them"""

    def telling(self, settings: Mapping[str, Any]) -> ChatTemplate:
        """The same with some of its `settings` set."""
        told = copy.copy(self)
        told.told = {**self.told, **{name: value for name, value in settings.items() if name in self.settings}}
        return told

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        now_ms: int,
        opener: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> str:
        """The text of a whole conversation. `now_ms` is the clock that the template sees, Unix time, shown as UTC.

        `opener` asks for the assistant header at the end. Raises `TemplateError` whatever goes wrong.
        """
        given = sum(_weight(message) for message in messages) + _weight(tools) + _weight(self.told)
        budget = _Budget(4 * given + MAX_MARGIN)
        names: dict[str, Any] = {
            **self.told,
            **self._names,
            "messages": [dict(message) for message in messages],
            "tools": None if tools is None else [dict(tool) for tool in tools],
            "documents": None,
            # Llama 3's would put them into the first user message, which may come much later than the system's
            "tools_in_user_message": False,
            "add_generation_prompt": opener,
            "raise_exception": _raise,
            "strftime_now": _clock(now_ms),
            "range": budget.range,
            _Environment.BUDGET: budget,
        }
        parts: list[str] = []
        try:
            for part in self._template.generate(names):
                budget.spend(len(part))
                parts.append(part)
        except TemplateError:
            raise
        except Exception as error:
            # whatever a template can do wrong, it is the template's fault: nothing of ours runs inside
            raise TemplateError(_one_line(error)) from None
        return "".join(parts)


class _Budget:
    """What one rendering may use: characters written or built, and loop steps."""

    def __init__(self, characters: int) -> None:
        self._characters = characters
        self._most = characters
        self._items = _MAX_ITEMS

    def spend(self, characters: int) -> None:
        self._characters -= characters
        if self._characters < 0:
            raise TemplateError("the chat template writes too much")

    def check(self, characters: int) -> None:
        """A value that long may exist, but is not written yet."""
        if characters > self._most:
            raise TemplateError("the chat template builds too long a text")

    def range(self, *bounds: int) -> range:
        made = range(*bounds)
        self._items -= len(made)
        if self._items < 0:
            raise TemplateError("the chat template loops too long")
        return made


class _Code(CodeGenerator):
    """Sends `a ~ b` through the environment, so that doubling a text in a loop ends."""

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        self.write("environment.joined(context, (")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")


class _Environment(ImmutableSandboxedEnvironment):
    BUDGET = "superfluid_budget"
    code_generator_class = _Code
    intercepted_binops = frozenset(("*", "**", "+"))

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.filters["tojson"] = _to_json
        for name in ("center", "indent", "wordwrap", "urlize", "xmlattr", "pprint"):
            self.filters[name] = _bounded(self.filters[name])
        self.globals.pop("lipsum", None)

    def joined(self, context: jinja2.runtime.Context, parts: Sequence[object]) -> str:
        texts = [str(part) for part in parts]
        context[self.BUDGET].check(sum(map(len, texts)))
        return "".join(texts)

    def call_binop(self, context: jinja2.runtime.Context, operator: str, left: Any, right: Any) -> Any:
        budget: _Budget = context[self.BUDGET]
        if operator == "**":
            if not isinstance(left, (int, float)) or not isinstance(right, (int, float)) or abs(right) > 64:
                raise TemplateError("the chat template raises to too high a power")
        elif operator == "*":
            for value, times in ((left, right), (right, left)):
                if isinstance(value, (str, list, tuple)) and isinstance(times, int):
                    budget.check(len(value) * max(0, times))
            if isinstance(left, int) and isinstance(right, int) and abs(left * right) > _MAX_POWER:
                raise TemplateError("the chat template counts too far")
        elif isinstance(left, (str, list, tuple)) and isinstance(right, (str, list, tuple)):
            budget.check(len(left) + len(right))
        return super().call_binop(context, operator, left, right)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        return attr not in _PADDING and super().is_safe_attribute(obj, attr, value)


class _Generation(Extension):
    """`{% generation %}` marks what the assistant wrote, for training; here its body counts as it stands."""

    tags = {"generation"}  # noqa: RUF012  (jinja2 declares it so)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    if indent is not None and not 0 <= indent <= 16:
        raise TemplateError("the chat template indents JSON too far")
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _bounded(filter_: Callable[..., Any]) -> Callable[..., Any]:
    """A filter whose width is an argument, with small widths only."""

    def bounded(*args: Any, **named: Any) -> Any:
        if any(isinstance(arg, int) and arg > 1000 for arg in (*args, *named.values())):
            raise TemplateError("the chat template pads too far")
        return filter_(*args, **named)

    return functools.update_wrapper(bounded, filter_)


def _raise(message: object = "") -> str:
    raise TemplateError(" ".join(str(message).split()) or "the chat template refuses these messages")


def _clock(now_ms: int) -> Callable[[str], str]:
    def strftime_now(form: str) -> str:
        if len(form) > 256 or _FORMAT.fullmatch(form) is None:
            raise TemplateError("the chat template asks for an unknown form of the date")
        return datetime.fromtimestamp(now_ms / 1000, UTC).strftime(form)

    return strftime_now


def _weight(value: object) -> int:
    """Characters in a message, roughly."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Mapping):
        return sum(len(str(key)) + _weight(part) for key, part in value.items())
    if isinstance(value, Sequence):
        return sum(_weight(part) for part in value)
    return 8


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    line = getattr(error, "lineno", None)
    return f"{text} (line {line} of the chat template)" if isinstance(line, int) else text
