"""What a request sets of the chat template: whether to think, and whatever else the template asks for.

A template that knows none of it is not changed by it. What the server sets itself cannot be set.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from superfluid.model.template import OWN
from superfluid.transports.http.errors import ApiError
from superfluid.transports.http.fields import Fields, wrong

MOST_CHARACTERS = 4096
"""Of all settings, names and values."""

EFFORTS = {"none": False, "minimal": False, "low": False, "medium": True, "high": True, "xhigh": True, "max": True}
"""Whether a model that can only think or not is to think (spec: streaming-facts, 1.5)."""

THINKS = ("enable_thinking", "thinking")
"""What templates call that."""

_FIELD = "chat_template_kwargs"
_ALWAYS = ("add_generation_prompt", "tools_in_user_message")
"""What some clients set to what it is anyway."""


def settings(fields: Fields) -> Mapping[str, Any]:
    """Of `reasoning_effort` and `chat_template_kwargs`, which goes before it. Raises ApiError."""
    return {**_effort(fields), **_given(fields)}


def thinking(on: bool) -> Mapping[str, Any]:
    """What tells a template whether to think."""
    return dict.fromkeys(THINKS, on)


def _effort(fields: Fields) -> Mapping[str, Any]:
    effort = fields.text("reasoning_effort")
    if effort is None:
        return {}
    if effort not in EFFORTS:
        raise wrong("reasoning_effort", f"one of {', '.join(EFFORTS)}", effort)
    return {"reasoning_effort": effort, **thinking(EFFORTS[effort])}


def _given(fields: Fields) -> Mapping[str, Any]:
    given = fields.object(_FIELD)
    if given is None:
        return {}
    found: dict[str, Any] = {}
    for name, value in given.items():
        if value is None or (name in _ALWAYS and value is True):
            continue
        param = given.param(name)
        if name in OWN:
            raise ApiError(f"{param}: the server sets this itself", param=param, code="invalid_value")
        if not isinstance(value, bool | int | float | str):
            raise wrong(param, "true, false, a number or a string", value)
        found[name] = value
    if sum(map(len, (*found, *map(str, found.values())))) > MOST_CHARACTERS:
        raise ApiError(f"{_FIELD}: it has more than {MOST_CHARACTERS} characters", param=_FIELD, code="invalid_value")
    return found
