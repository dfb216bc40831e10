"""Parsed JSON read field by field; what does not fit is an ApiError that names the field and what it wants.

`null` is the same as absent. A field is named by its path, as in `messages[1].content`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from superfluid.transports.http.errors import ApiError

SHOWN = 40
"""Characters of a value that an error repeats."""


def wrong(param: str, expected: str, value: Any) -> ApiError:
    """`param` is not what it has to be."""
    return ApiError(f"{param}: expected {expected}, got {_shown(value)}", param=param, code="invalid_value")


def missing(param: str, expected: str) -> ApiError:
    return ApiError(f"{param}: missing; expected {expected}", param=param, code="missing_required_parameter")


def unsupported(param: str, what: str) -> ApiError:
    """A field that has a meaning, but not for this server."""
    return ApiError(f"{param}: this server does not do {what} yet", param=param, code="unsupported_parameter")


class Fields:
    """One JSON object. `path` stands before the names of its fields in errors."""

    def __init__(self, values: Mapping[str, Any], path: str = "") -> None:
        self._values = values
        self._path = path

    def param(self, name: str) -> str:
        return f"{self._path}.{name}" if self._path else name

    def raw(self, name: str) -> Any:
        """The value as JSON gives it; None where it is absent or null."""
        return self._values.get(name)

    def text(self, name: str) -> str | None:
        value = self.raw(name)
        if value is not None and not isinstance(value, str):
            raise wrong(self.param(name), "a string", value)
        return value

    def needed_text(self, name: str) -> str:
        """A text that has to be there and has to say something."""
        value = self.text(name)
        if value is None:
            raise missing(self.param(name), "a string")
        if not value:
            raise wrong(self.param(name), "a string that is not empty", value)
        return value

    def flag(self, name: str) -> bool:
        """True or false; false where it is absent."""
        value = self.raw(name)
        if value is None:
            return False
        if not isinstance(value, bool):
            raise wrong(self.param(name), "true or false", value)
        return value

    def whole(self, name: str, low: int, high: int | None = None) -> int | None:
        """A whole number from `low` to `high`."""
        value = self.raw(name)
        if value is None:
            return None
        if _is_whole(value) and value >= low and (high is None or value <= high):
            return int(value)
        limits = f"from {low} to {high}" if high is not None else f"from {low} up"
        raise wrong(self.param(name), f"a whole number {limits}", value)

    def number(self, name: str, low: float, high: float) -> float | None:
        """A number from `low` to `high`."""
        value = self.raw(name)
        if value is None:
            return None
        return number(value, self.param(name), low, high)

    def object(self, name: str) -> Fields | None:
        value = self.raw(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise wrong(self.param(name), "an object", value)
        return Fields(value, self.param(name))

    def array(self, name: str) -> Sequence[Any] | None:
        value = self.raw(name)
        if value is not None and not isinstance(value, list):
            raise wrong(self.param(name), "an array", value)
        return value

    def items(self) -> Sequence[tuple[str, Any]]:
        """All fields, as they stand."""
        return tuple(self._values.items())


def number(value: Any, param: str, low: float, high: float) -> float:
    """`value` as a number from `low` to `high`."""
    fits = isinstance(value, int | float) and not isinstance(value, bool)
    # Compared before it is converted: a whole number may be larger than any float.
    if fits and not (isinstance(value, float) and math.isnan(value)) and low <= value <= high:
        return float(value)
    raise wrong(param, f"a number from {low:g} to {high:g}", value)


def is_token(value: Any) -> bool:
    """Whether a JSON value can be a token id."""
    return _is_whole(value) and value >= 0


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    """A value in an error: its kind where it is long, and nothing that a terminal would take amiss."""
    match value:
        case dict():
            return "an object"
        case list():
            return f"an array of {len(value)}"
        case str() if len(value) > SHOWN:
            return f"a string of {len(value)} characters"
    try:
        text = json.dumps(value)
    except ValueError:  # a whole number with thousands of digits
        return "a number with too many digits"
    return text if len(text) <= 6 * SHOWN else f"a number of {len(text)} digits"
