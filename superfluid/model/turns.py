"""Turns as a template gets them, and the placeholders that stand for turns whose text is not at hand."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from superfluid.model.callformat import CallFormat
from superfluid.model.masking import LEFT, RIGHT
from superfluid.protocol.codes import Role
from superfluid.protocol.refusals import ProtocolRefusal

_NAMES = {Role.SYSTEM: "system", Role.USER: "user", Role.ASSISTANT: "assistant", Role.TOOL: "tool"}
# How many turns before a message are rendered with it. Templates look at the first message, at the one before, and
# at the parity of turns: a window that starts at a user turn looks to them like the whole.
_WINDOW = 8
# So many are enough to tell those, whatever is taken off or put on at the end before.
_LATEST = 2 * _WINDOW


@dataclass(frozen=True, slots=True)
class Conversation:
    """What a session holds so far, in shape."""

    roles: tuple[int, ...]
    """`codes.Role` of the messages and assistant turns so far, in order; `latest` of them do"""
    empty: bool
    """nothing is on the model's input yet"""
    finished: bool
    """the last stream record is a `Generated` that ended its turn: the turn separator is due"""
    created_ms: int
    """Unix time that the template sees, whenever it is asked"""
    data: bool = False
    """the last turn is a user turn that holds data and has no end yet"""
    cut: bool = False
    """the last turn is an assistant turn without an end, which the next user turn is to close"""


@dataclass(frozen=True, slots=True)
class TurnCall:
    """A tool call of an assistant turn as the template gets it, masked or a placeholder."""

    id: str
    name: str
    arguments: Mapping[str, Any] | str


@dataclass(frozen=True, slots=True)
class Turn:
    """A message as the template gets it. `content` is masked text or a placeholder."""

    role: int
    content: str
    calls: tuple[TurnCall, ...] = ()
    name: str | None = None
    """of a tool result: the tool's"""
    call_id: str | None = None
    """of a tool result: `TurnCall.id` of the call that it answers"""

    def marks(self) -> tuple[str, ...]:
        """The texts of a placeholder by which it is found in a rendering; templates may leave some out."""
        keys = (key for call in self.calls if isinstance(call.arguments, Mapping) for key in call.arguments)
        texts = (call.arguments for call in self.calls if isinstance(call.arguments, str))
        return (self.content, *texts, *keys)

    def end_in(self, text: str) -> int:
        """Where in `text` the last of its marks ends, -1 where there is none."""
        ends = (at + len(mark) for mark in self.marks() if mark and (at := text.rfind(mark)) >= 0)
        return max(ends, default=-1)

    def message(self) -> dict[str, Any]:
        """The message in the form that templates are written for."""
        message: dict[str, Any] = {"role": role_name(self.role), "content": self.content}
        if self.calls:
            message["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in self.calls
            ]
        if self.name is not None:
            message["name"] = self.name
        if self.call_id is not None:
            message["tool_call_id"] = self.call_id
        return message


def call_name(call_id: int) -> str:
    """A call's id as templates see it: nine digits, which is what the pickiest of them want."""
    return f"{call_id % 10**9:09d}"


def histories(before: Conversation, calls: CallFormat | None, results: int = 0) -> list[tuple[Turn, ...]]:
    """What may stand for the turns so far, the truest first, the least that a template accepts last.

    `results`: so many tool results follow. With a call format, assistant turns that results follow hold calls.
    """
    roles = before.roles
    if before.finished and roles[-1:] != (Role.ASSISTANT,):
        roles = (*roles, Role.ASSISTANT)
    if not roles:
        # raw tokens came first: render as in the middle of a conversation
        return [placeholders((Role.USER, Role.ASSISTANT), calls, results)]
    recent = _window(roles)
    found: list[tuple[Turn, ...]] = []
    for candidate in (recent, [role for role in recent if role != Role.SYSTEM], *_least(roles[-1])):
        history = placeholders(candidate, calls, results)
        if history and history not in found:
            found.append(history)
    return found


def latest(roles: Sequence[int]) -> tuple[int, ...]:
    """Of the roles of a conversation, those that a rendering may depend on: the first and the last ones, and as many
    before the tool results at the end. Bounded, however long the conversation is."""
    end = len(roles)
    while end and roles[end - 1] == Role.TOOL:
        end -= 1
    results = min(len(roles) - end, _LATEST)
    return (*roles[: min(1, end)], *roles[max(1, end - _LATEST) : end], *[Role.TOOL] * results)


def placeholder(index: int, role: int) -> Turn:
    turn = Turn(role, _mark(index))
    return Turn(role, turn.content, name="tool", call_id=call_name(index)) if role == Role.TOOL else turn


def placeholders(roles: Sequence[int], calls: CallFormat | None = None, results: int = 0) -> tuple[Turn, ...]:
    """A placeholder for each role. `results` and `calls` as for `histories`."""
    turns = [placeholder(index, role) for index, role in enumerate(roles)]
    if calls is None:
        return tuple(turns)
    following = results
    for index in range(len(turns) - 1, -1, -1):
        if roles[index] == Role.TOOL:
            following += 1
            continue
        if roles[index] == Role.ASSISTANT and following:
            count = following if calls.parallel else 1
            made = tuple(_placeholder_call(index, number, calls) for number in range(count))
            turns[index] = Turn(Role.ASSISTANT, turns[index].content, made)
        following = 0
    return tuple(turns)


def placeholder_like(index: int, turn: Turn, calls: CallFormat | None) -> Turn:
    """A placeholder with as many calls as `turn`, or with its tool."""
    made = () if calls is None else tuple(_placeholder_call(index, at, calls) for at in range(len(turn.calls)))
    return Turn(turn.role, _mark(index) if turn.content or not made else "", made, turn.name, turn.call_id)


def role_name(role: int) -> str:
    try:
        return _NAMES[Role(role)]
    except ValueError:
        raise ProtocolRefusal(f"unknown message role {role}") from None


def _placeholder_call(turn: int, number: int, calls: CallFormat) -> TurnCall:
    # the id is that of the result's placeholder, which is `number` turns after the next one
    arguments: Mapping[str, Any] | str = {f"{LEFT}{turn}.{number}{RIGHT}": 0}
    if calls.as_text:
        arguments = json.dumps(arguments, ensure_ascii=False)
    return TurnCall(call_name(turn + 1 + number), "tool", arguments)


def _mark(index: int) -> str:
    return f"{LEFT}{index}{RIGHT}"


def _least(last: int) -> list[Sequence[int]]:
    match last:
        case Role.USER | Role.SYSTEM:
            return [(Role.USER,)]
        case Role.TOOL:
            return [(Role.USER, Role.ASSISTANT, Role.TOOL), (Role.USER, Role.ASSISTANT)]
        case _:
            return [(Role.USER, Role.ASSISTANT)]


def _window(roles: Sequence[int]) -> list[int]:
    """The system message at the start, if any, and the last turns, from a user turn on."""
    head, rest = (list(roles[:1]), roles[1:]) if roles[0] == Role.SYSTEM else ([], roles)
    if len(rest) > _WINDOW:
        rest = rest[-_WINDOW:]
        starts = [at for at, role in enumerate(rest) if role == Role.USER]
        if not starts and Role.ASSISTANT in rest:
            # one question and many tool calls: the question is further back
            rest = (Role.USER, *rest[list(rest).index(Role.ASSISTANT) :])
        rest = rest[starts[0] :] if starts else rest
    return [*head, *rest]
