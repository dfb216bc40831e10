"""Numeric codes that travel on the wire (spec: wire-facts, section 7)."""

from __future__ import annotations

from enum import Enum, IntEnum


class Role(IntEnum):
    """Who speaks. A client may append the first three; TOOL appears in records only."""

    SYSTEM = 0
    USER = 1
    ASSISTANT = 2
    TOOL = 3


class Channel(IntEnum):
    """Which stream of a reply a piece of text belongs to."""

    TEXT = 0
    REASONING = 1
    TOOL_CALL = 2


class Finish(IntEnum):
    """Why a generation ended; OPEN on a `Generated` record whose turn goes on."""

    OPEN = 0
    END_OF_TURN = 1
    LENGTH = 2
    GRAMMAR = 3
    CANCELLED = 4
    ERROR = 5


class Qos(IntEnum):
    """Scheduling class, best first."""

    INTERACTIVE = 0
    COMPLETION = 1
    AGENT = 2
    BACKGROUND = 3


QOS_NAMES: dict[str, Qos] = {
    name: qos
    for qos, names in {
        Qos.INTERACTIVE: ("interactive", "interactive-chat"),
        Qos.COMPLETION: ("completion", "inline-completion"),
        Qos.AGENT: ("agent", "foreground", "foreground-agent"),
        Qos.BACKGROUND: ("background", "background-agent"),
    }.items()
    for name in (*names, str(int(qos)))
}
"""What people call the scheduling classes; see `qos_named`."""


def qos_named(name: str) -> Qos | None:
    """The class of that name, in any case and with `_` for `-`; None where there is none."""
    return QOS_NAMES.get(name.strip().lower().replace("_", "-"))


class ToolOutcomeCode(IntEnum):
    """What a client may report instead of a result."""

    FAILED = 1
    CANCELLED = 2


class LedgerState(IntEnum):
    """Where a tool call stands. OPEN and CANCEL_REQUESTED are open, the others terminal."""

    OPEN = 0
    CANCEL_REQUESTED = 1
    SUCCEEDED = 2
    FAILED = 3
    CANCELLED = 4
    EXPIRED = 5
    CANCELLED_WITH_LATE_EFFECT = 6


class BlockKind(IntEnum):
    """What a structured block holds."""

    FILE_DIFF = 1
    ARTIFACT = 2
    CITATION = 3
    PROGRESS = 4
    DIAGNOSTIC = 5
    WORKSPACE_REF = 6
    IMAGE = 7


class Fault(IntEnum):
    """Why a lane failed (named in the error text of a failed generation)."""

    UNSPECIFIED = 0
    GRAMMAR_OVERFLOW = 1
    BAD_TOKEN = 2
    STRATEGY = 3
    OUT_OF_MEMORY = 4
    INTERNAL = 5
    MEDIA = 6


class FimMode(IntEnum):
    """Which part of a fill-in-the-middle prompt comes first: the prefix, or the suffix."""

    PSM = 0
    SPM = 1


class PurgeMode(Enum):
    """What becomes of a purged session's descendants: purged too, or cut loose with what they inherited."""

    CASCADE = "Cascade"
    REROOT = "Reroot"
