"""Texts of options turned into values. Each parser raises ValueError saying what it expected."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from superfluid_cli import places

_SIZES = {"b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}
_TIMES = {"s": 1.0, "m": 60.0, "h": 3600.0}
_LEVELS = ("debug", "info", "warn", "warning", "error", "off")
ALL_LAYERS = (1 << 31) - 1
"""What `--gpu-layers all` asks for; the same number as `superfluid.protocol.ticks.ALL_LAYERS`."""


def whole(low: int = 0, high: int | None = None, what: str = "a whole number") -> Callable[[str], int]:
    """A parser of whole numbers from `low` to `high`, in decimal digits."""

    def parse(text: str) -> int:
        if text.isascii() and text.isdigit() and len(text) <= 20:
            number = int(text)
            if number >= low and (high is None or number <= high):
                return number
        limits = f" from {low} to {high}" if high is not None else f" from {low} up" if low else ""
        raise ValueError(f"expected {what}{limits}, got {text!r}")

    return parse


session_id = whole(0, (1 << 64) - 1, "a session id, which is a whole number")
event_id = whole(0, (1 << 64) - 1, "an event id, which is a whole number")
call_id = whole(0, (1 << 64) - 1, "a call id, which is a whole number")


@dataclass(frozen=True, slots=True)
class IdOrName:
    """A session as people say which: by its id, or by its name."""

    id: int | None
    name: str

    def __str__(self) -> str:
        return self.name


def session_name(text: str) -> str:
    """A name that a session can have (design decision 1)."""
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,128}", text) or text.isdigit():
        raise ValueError(f"expected a name of up to 128 letters, digits, _ and -, not digits alone, got {text!r}")
    return text


def session_ref(text: str) -> IdOrName:
    """Digits are an id, anything else a name."""
    if text.isascii() and text.isdigit():
        return IdOrName(session_id(text), text)
    try:
        return IdOrName(None, session_name(text))
    except ValueError:
        raise ValueError(f"expected a session's id or name, got {text!r}") from None


seed = whole(0, (1 << 64) - 1)
token_count = whole(1, (1 << 32) - 1)


def auto_or(parse: Callable[[str], int]) -> Callable[[str], int]:
    """A parser that reads `auto` as -1, which `unless_auto` turns into None."""

    def parse_auto(text: str) -> int:
        if text == "auto":
            return -1
        try:
            return parse(text)
        except ValueError as fault:
            raise ValueError(str(fault).replace("expected ", "expected auto or ", 1)) from None

    return parse_auto


def unless_auto(value: int | None) -> int | None:
    return None if value is None or value < 0 else value


def layers(text: str) -> int:
    """`all`, or a number of layers."""
    if text == "all":
        return ALL_LAYERS
    try:
        return whole(0, 10_000)(text)
    except ValueError as fault:
        raise ValueError(str(fault).replace("expected ", "expected all or ", 1)) from None


def fraction(low: float, high: float | None) -> Callable[[str], float]:
    """A parser of finite decimal numbers from `low` to `high`."""

    def parse(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if math.isfinite(number) and number >= low and (high is None or number <= high):
            return number
        limits = f"from {low:g} to {high:g}" if high is not None else f"from {low:g} up"
        raise ValueError(f"expected a number {limits}, got {text!r}")

    return parse


def size(unit: int) -> Callable[[str], int]:
    """A parser of sizes in bytes: `512MiB`, `1.5GiB`; a bare number counts units of `unit` bytes."""
    bare = {1 << 30: "GiB", 1 << 20: "MiB", 1: "bytes"}[unit]

    def parse(text: str) -> int:
        digits, suffix = _split(text)
        factor = _SIZES.get(suffix.lower()) if suffix else unit
        if digits is None or factor is None:
            raise ValueError(f"expected a size such as 512MiB or 4GiB (a bare number is {bare}), got {text!r}")
        return int(digits * factor)

    return parse


def duration(text: str) -> float:
    """Seconds: `60`, `30s`, `2m`, `1h`."""
    digits, suffix = _split(text)
    factor = _TIMES.get(suffix.lower()) if suffix else 1.0
    if digits is None or factor is None:
        raise ValueError(f"expected a time such as 60, 30s, 2m or 1h, got {text!r}")
    return digits * factor


def kept(text: str) -> float:
    """Seconds, without end for `forever`."""
    if text == "forever":
        return math.inf
    try:
        return duration(text)
    except ValueError as fault:
        raise ValueError(str(fault).replace("expected ", "expected forever or ", 1)) from None


def _split(text: str) -> tuple[float | None, str]:
    """The number at the start of `text`, None where there is no finite one, and what follows it."""
    text = text.strip()
    length = len(text) - len(text.lstrip("0123456789."))
    try:
        number = float(text[:length])
    except ValueError:
        return None, ""
    return (number if number < 1e15 else None), text[length:].strip()


def milliseconds(text: str) -> int:
    """As `duration`, in whole milliseconds and at least one."""
    number = round(duration(text) * 1000)
    if number < 1:
        raise ValueError(f"expected a time of at least a millisecond, such as 30s, got {text!r}")
    return number


def token_ids(text: str) -> tuple[int, ...]:
    """`1,2,3`: token ids in order."""
    parse = whole(0, (1 << 32) - 1, "token ids such as 1,2,3, each")
    return tuple(parse(part.strip()) for part in text.split(","))


def role(text: str) -> int:
    """The number of a role that a client may append."""
    roles = {"system": 0, "user": 1, "assistant": 2}
    if text.lower() not in roles:
        raise ValueError(f"expected user, system or assistant, got {text!r}")
    return roles[text.lower()]


_QOS = (
    ("interactive", "interactive-chat", "interactive_chat", "0"),
    ("completion", "inline-completion", "inline_completion", "1"),
    ("agent", "foreground", "foreground-agent", "foreground_agent", "2"),
    ("background", "background-agent", "background_agent", "3"),
)
"""The scheduling classes, in the order of `superfluid.protocol.codes.Qos`, each with all its spellings."""


def qos(text: str) -> int:
    """The number of a scheduling class."""
    word = text.strip().lower()
    for number, spellings in enumerate(_QOS):
        if word in spellings:
            return number
    raise ValueError(f"expected interactive, completion, agent or background, got {text!r}")


def qos_name(number: int) -> str:
    """A scheduling class in words."""
    return _QOS[number][0] if number < len(_QOS) else str(number)


def flag(text: str) -> bool:
    """What an environment variable says about a flag."""
    word = text.strip().lower()
    if word in ("1", "true", "yes", "on"):
        return True
    if word in ("0", "false", "no", "off"):
        return False
    raise ValueError(f"expected 1 or 0, got {text!r}")


def path(text: str) -> Path:
    if not text or "\0" in text:
        raise ValueError(f"expected a path, got {text!r}")
    return Path(text).expanduser()


def socket_path(text: str) -> Path:
    """A path that a unix socket can have."""
    chosen = path(text)
    if not places.fits(chosen):
        raise ValueError(f"expected a path of at most {places.LONGEST_SOCKET_PATH} bytes, got {text!r}")
    return chosen


def log_filter(text: str) -> str:
    """A level, or a comma-separated list of `logger=level`."""
    for part in text.split(","):
        name, equals, level = part.strip().rpartition("=")
        if level.lower() not in _LEVELS or (equals and not name.strip()):
            raise ValueError(
                f"expected a level ({', '.join(_LEVELS)}) or a list such as info,superfluid.store=debug, got {text!r}"
            )
    return text
