"""Numeric codes that travel on the wire, and what they are called here."""

from __future__ import annotations

from typing import Union

SYSTEM, USER, ASSISTANT, TOOL = range(4)
"""Roles. A client appends the first three; TOOL appears in the log only."""

TEXT, REASONING, TOOL_CALL = range(3)
"""Channels: which stream of a reply a piece of text belongs to."""

ROLE_NAMES = ("system", "user", "assistant", "tool")
CHANNEL_NAMES = ("text", "reasoning", "tool_call")
FINISH_NAMES = ("none", "stop", "length", "grammar", "cancelled", "error")

Role = Union[int, str]
"""A role by its code or its name."""


def role_code(role: Role) -> int:
    """The code of a role. Raises ValueError where no role has that name."""
    if isinstance(role, int):
        return role
    if role not in ROLE_NAMES:
        raise ValueError(f"unknown role {role!r}; one of {', '.join(ROLE_NAMES)}")
    return ROLE_NAMES.index(role)


def name_of(code: int, names: tuple[str, ...]) -> str:
    """What `code` is called; a code newer than this client is its number."""
    return names[code] if 0 <= code < len(names) else str(code)
