"""The daemon's log: one rotating file, levels by `--log-filter`. It holds ids, counts, times and codes, no texts."""

from __future__ import annotations

import logging
import logging.handlers
import os
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from superfluid.protocol.refusals import BadLogDirective

LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "off": logging.CRITICAL + 10,
}

_ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]

FILE_BYTES, FILES = 8 << 20, 3


class BadFilter(ValueError):
    """A log filter that names no level. `str()` says which part and what it may be."""


def parse_filter(text: str) -> dict[str, int]:
    """Levels by logger name, "" for all others: `info`, or `info,superfluid.engine=debug`. Raises BadFilter."""
    levels: dict[str, int] = {}
    for part in text.split(","):
        name, equals, level = part.strip().rpartition("=")
        if level.lower() not in LEVELS or (equals and not name):
            raise BadFilter(f"log filter {part.strip()!r}: expected a level ({', '.join(LEVELS)}) or logger=level")
        levels[name] = LEVELS[level.lower()]
    return levels


def set_levels(levels: dict[str, int]) -> None:
    for name, level in levels.items():
        logging.getLogger(name or "superfluid").setLevel(level)


def loggers() -> tuple[str, ...]:
    """The names of the daemon's loggers; `superfluid` is all of them."""
    known = logging.root.manager.loggerDict
    return tuple(sorted(name for name in known if name == "superfluid" or name.startswith("superfluid.")))


def direct(directive: str) -> None:
    """Log at other levels from now on (wire-facts 8.17). What the directive does not name follows its level for all
    others, or where it gives none, the one that was. Raises BadLogDirective; then nothing has changed."""
    try:
        levels = parse_filter(directive)
    except BadFilter as fault:
        raise BadLogDirective(str(fault)) from None
    known = loggers()
    for name in filter(None, levels):
        if name not in known:
            raise BadLogDirective(f"no logger {name!r}; there are {', '.join(known)}")
    for name in known:
        if name != "superfluid":
            logging.getLogger(name).setLevel(logging.NOTSET)
    set_levels(levels)


def open_log(path: Path, levels: dict[str, int]) -> logging.Handler:
    """Send the log to `path`, mode 0600. Raises OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
    handler = _PrivateFile(path, maxBytes=FILE_BYTES, backupCount=FILES, encoding="utf-8", errors="replace")
    handler.setFormatter(Textless("%(asctime)s %(levelname)-7s %(name)s %(message)s"))
    logger = logging.getLogger("superfluid")
    logger.addHandler(handler)
    logger.propagate = False
    set_levels(levels)
    logging.raiseExceptions = False  # a full disk must not end the daemon for the sake of its log
    return handler


class Textless(logging.Formatter):
    """Writes exceptions by kind and place: what they say may hold the text of a session, or a token (decision 40)."""

    def formatException(self, ei: _ExcInfo) -> str:
        return "".join(_places(ei[1])).rstrip("\n") if ei[1] is not None else ""


def _places(fault: BaseException) -> Iterator[str]:
    before = fault.__cause__ if fault.__suppress_context__ else fault.__context__
    if before is not None:
        yield from _places(before)
        yield "then\n"
    yield from traceback.format_tb(fault.__traceback__)
    yield f"{type(fault).__name__}\n"
    if isinstance(fault, BaseExceptionGroup):
        for one in fault.exceptions:
            yield "of which\n"
            yield from _places(one)


class _PrivateFile(logging.handlers.RotatingFileHandler):
    def _open(self):  # type: ignore[no-untyped-def]  # noqa: ANN202
        stream = super()._open()
        os.chmod(self.baseFilename, 0o600)
        return stream
