"""What a resent conversation does to a session that holds some of it, with data between."""

from __future__ import annotations

import pytest

from superfluid.protocol.codes import Role
from superfluid.protocol.records import Created, Entry, Event, GenParams, Ingested, Message, ToolUse
from superfluid.sessions.resending import Resumption, matched, resume
from superfluid.sessions.state import SessionState

ROLES = {"s": Role.SYSTEM, "u": Role.USER, "a": Role.ASSISTANT}


def _sent(words: str) -> tuple[tuple[int, str], ...]:
    """`u1 a2` is the user's message u1 and the reply a2."""
    return tuple((int(ROLES[word[0]]), word) for word in words.split())


def _state(words: str) -> SessionState:
    """As `_sent`; `d` is a batch of data."""
    state = SessionState(1)
    bodies = [Created(None, GenParams())]
    for word in words.split():
        if word == "d":
            bodies.append(Ingested(len(bodies), (1,), (Entry("line", (2, 3)),), 0, 0))
        else:
            bodies.append(Message(ROLES[word[0]], word, (4, 5)))
    for place, body in enumerate(bodies):
        state.apply(Event(place, 1, 0, body))
    return state


@pytest.mark.parametrize(
    ("held", "sent", "kept", "before", "after"),
    [
        ("", "u1", None, "", "u1"),
        ("", "s u1", None, "", "s u1"),
        ("u1 a1", "u1 a1 u2", None, "", "u2"),
        ("u1 a1 d", "u1 a1 u2", None, "", "u2"),
        ("d u1 d a1 d", "u1 a1 u2", None, "", "u2"),
        ("s d u1 a1", "s u1 a1", None, "", ""),
        # edits
        ("u1 a1", "u1 a2 u2", 1, "", "a2 u2"),
        ("d u1 a1 d", "u1 a2 u2", 1, "", "a2 u2"),
        ("u1 a1 u2 a2", "u1 a1 u3", 2, "", "u3"),
        ("u1 a1", "a1", 0, "", "a1"),
        ("s u1", "u1", 0, "", "u1"),
        # asked again
        ("u1 a1", "u1", 1, "", ""),
        ("u1 a1 d", "u1", 0, "", "u1"),
        ("d u1 a1", "u1", 1, "", ""),
        ("u1 a1 u2 a2 d", "u1 a1 u2", 2, "", "u2"),
        ("u1 d", "u1", None, "", ""),
        # late system messages
        ("d", "s u1", 0, "s", "u1"),
        ("d u1 a1 d", "u1 a1 s u2", 2, "s", "u2"),
        ("d u1 a1", "u1 a1 s u2", None, "", "s u2"),
        ("d u1 a1", "s u1 a1 u2", 0, "s", "u1 a1 u2"),
        ("u1 d", "u1 u2 s u3 s u4", 1, "u2 s u3 s", "u4"),
        ("u1 a1", "u2 s u3", 0, "u2 s", "u3"),
    ],
)
def test_resuming(held, sent, kept, before, after):
    state = _state(held)
    found = resume(state, _sent(sent))
    count = len(state.said) if kept is None else kept
    assert found == Resumption(count, kept is not None, _sent(before), _sent(after))


def test_only_the_blanks_around_replies_do_not_count():
    said = _state("u1 a1").said
    assert matched(said, ((1, "u1"), (2, " a1\n"))) == 2
    assert matched(said, ((1, "u1 "), (2, "a1"))) == 0
    assert matched(said, ((0, "u1"), (2, "a1"))) == 0
    assert matched(said, ()) == 0


def test_a_message_with_a_call_is_not_what_plain_text_says():
    state = _state("u1 a1")
    state.apply(Event(state.events, 1, 0, ToolUse("f", "{}")))
    assert matched(state.said, _sent("u1 a1")) == 1
