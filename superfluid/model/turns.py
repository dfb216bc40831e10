"""Turns as a template gets them, and the placeholders that stand for turns whose text is not at hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from superfluid.model.masking import LEFT, RIGHT
from superfluid.protocol.codes import Role
from superfluid.protocol.refusals import ProtocolRefusal

_NAMES = {Role.SYSTEM: "system", Role.USER: "user", Role.ASSISTANT: "assistant", Role.TOOL: "tool"}
# How many turns before a message are rendered with it. Templates look at the first message, at the one before, and
# at the parity of turns: a window that starts at a user turn looks to them like the whole.
_WINDOW = 8


@dataclass(frozen=True, slots=True)
class Conversation:
    """What a session holds so far, in shape."""

    roles: tuple[int, ...]
    """`codes.Role` of the messages and assistant turns so far, in order"""
    empty: bool
    """nothing is on the model's input yet"""
    finished: bool
    """the last stream record is a `Generated` that ended its turn: the turn separator is due"""
    created_ms: int
    """Unix time that the template sees, whenever it is asked"""


@dataclass(frozen=True, slots=True)
class Turn:
    """A message as the template gets it. `content` is masked text or a placeholder."""

    role: int
    content: str


def histories(before: Conversation) -> list[tuple[Turn, ...]]:
    """What may stand for the turns so far, the truest first, the least that a template accepts last."""
    roles = before.roles
    if before.finished and roles[-1:] != (Role.ASSISTANT,):
        roles = (*roles, Role.ASSISTANT)
    if not roles:
        # raw tokens came first: render as in the middle of a conversation
        return [placeholders((Role.USER, Role.ASSISTANT))]
    recent = _window(roles)
    least = (Role.USER,) if roles[-1] in (Role.USER, Role.SYSTEM) else (Role.USER, Role.ASSISTANT)
    found: list[tuple[Turn, ...]] = []
    for candidate in (recent, [role for role in recent if role != Role.SYSTEM], least):
        history = placeholders(candidate)
        if history and history not in found:
            found.append(history)
    return found


def placeholder(index: int, role: int) -> Turn:
    return Turn(role, f"{LEFT}{index}{RIGHT}")


def placeholders(roles: Sequence[int]) -> tuple[Turn, ...]:
    return tuple(placeholder(index, role) for index, role in enumerate(roles))


def role_name(role: int) -> str:
    try:
        return _NAMES[Role(role)]
    except ValueError:
        raise ProtocolRefusal(f"unknown message role {role}") from None


def _window(roles: Sequence[int]) -> list[int]:
    """The system message at the start, if any, and the last turns, from a user turn on."""
    head, rest = (list(roles[:1]), roles[1:]) if roles[0] == Role.SYSTEM else ([], roles)
    if len(rest) > _WINDOW:
        rest = rest[-_WINDOW:]
        starts = [at for at, role in enumerate(rest) if role == Role.USER]
        rest = rest[starts[0] :] if starts else rest
    return [*head, *rest]
