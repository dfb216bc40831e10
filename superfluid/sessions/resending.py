"""A conversation that a client sends again, beside what the session holds of it (decisions 16 and 17).

Data stands between messages and is stepped over. What is new goes after the data, so that a turn sees them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from superfluid.protocol.codes import Role
from superfluid.sessions.said import Said
from superfluid.sessions.state import SessionState

Sent = tuple[int, str]
"""A message as a client sends it: role and text."""


@dataclass(frozen=True, slots=True)
class Resumption:
    """How a session goes on: the first `kept` messages stay; with `rewinds`, what came after them leaves.

    `before_data` and then `after_data` are new; the data that leaves with a rewind comes back between them.
    """

    kept: int
    rewinds: bool
    before_data: tuple[Sent, ...]
    after_data: tuple[Sent, ...]


def resume(state: SessionState, sent: Sequence[Sent]) -> Resumption:
    """What to do so that `sent` is the conversation and the reply answers its last message."""
    kept = matched(state.said, sent)
    if kept == len(sent) < len(state.said) and sent and sent[-1][0] == Role.USER and _data_after(state, kept):
        kept -= 1  # the question is asked again: after the data, like any
    new = tuple(sent[kept:])
    systems = [place for place, (role, _) in enumerate(new) if role == Role.SYSTEM]
    late = bool(systems) and _data_after(state, kept)
    if kept == len(state.said) and not late:
        return Resumption(kept, False, (), new)
    early = systems[-1] + 1 if systems else 0
    return Resumption(kept, True, new[:early], new[early:])


def matched(said: Sequence[Said], sent: Sequence[Sent]) -> int:
    """How many messages at the front are the same. Of replies, white space around them does not count."""
    count = 0
    for held, (role, text) in zip(said, sent, strict=False):
        same = held.text.strip() == text.strip() if role == Role.ASSISTANT else held.text == text
        if held.role != role or not same or held.calls:
            break
        count += 1
    return count


def system_first(sent: Sequence[Sent]) -> tuple[Sent, ...]:
    """The same conversation with all that its system messages say in one, before everything else."""
    system = [text for role, text in sent if role == Role.SYSTEM]
    others = tuple(one for one in sent if one[0] != Role.SYSTEM)
    return ((Role.SYSTEM, "\n\n".join(system)), *others) if system else others


def _data_after(state: SessionState, kept: int) -> bool:
    """Whether data came after the first `kept` messages."""
    end = state.said[kept - 1].end if kept else 0
    return bool(state.feed.detached) or any(start >= end for start, _ in state.feed.entries)
