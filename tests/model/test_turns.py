"""What a long conversation shows of itself to a template: a bounded part, which tells as much as the whole."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from superfluid.daemon.served import conversation
from superfluid.model.callformat import CallFormat, learn
from superfluid.model.template import ChatTemplate
from superfluid.model.turns import Conversation, histories, latest
from superfluid.protocol.codes import Role
from superfluid.sessions.state import SessionState
from tests.model import tool_templates

# Runs of one role, tool results above all, are what a window may have to look behind.
ROLES = st.lists(
    st.tuples(st.sampled_from(Role), st.integers(1, 3) | st.integers(14, 40)).map(lambda run: [run[0]] * run[1]),
    max_size=12,
).map(lambda runs: [role for run in runs for role in run])


def shown(roles, *, finished=False):
    return Conversation(tuple(roles), not roles, finished, 0)


def without_results(roles):
    """As a template sees it that writes all results of a turn at once."""
    while len(roles) > 1 and roles[-1] == Role.TOOL:
        roles = roles[:-1]
    return roles


@pytest.fixture(scope="module")
def calls():
    found = learn(ChatTemplate(tool_templates.HERMES))
    assert isinstance(found, CallFormat)
    return found


@given(roles=ROLES, finished=st.booleans(), results=st.integers(0, 1))
def test_the_part_that_is_shown_tells_as_much_as_the_whole(calls, roles, finished, results):
    part = latest(roles)
    for whole, seen in (
        (tuple(roles), part),
        (tuple(roles[:-1]), part[:-1]),  # a turn that holds data, or an assistant's header
        (without_results(tuple(roles)), without_results(part)),
    ):
        for form in (None, calls):
            wanted = histories(shown(whole, finished=finished), form, results)
            assert histories(shown(seen, finished=finished), form, results) == wanted
        assert bool(seen) == bool(whole)


@given(roles=ROLES)
def test_of_the_part_that_is_shown_nothing_more_is_left_out(roles):
    assert latest(latest(roles)) == latest(roles)
    assert len(latest(roles)) <= 40


class Counted(list):
    """A list that counts what is read of it."""

    read = 0

    def __getitem__(self, at):
        found = super().__getitem__(at)
        self.read += len(found) if isinstance(at, slice) else 1
        return found

    def __iter__(self):
        self.read += len(self)
        return super().__iter__()


def read_for(messages):
    """How many roles are read to render so many messages one after the other."""
    state = SessionState(1)
    state.roles = Counted()
    for number in range(messages):
        state.roles.append(Role.ASSISTANT if number % 2 else Role.USER)
        assert replace(conversation(state), created_ms=1).roles[-1] == state.roles[-1]
    return state.roles.read


def test_what_is_read_grows_with_the_messages_and_not_with_their_square():
    assert read_for(4000) <= 2.2 * read_for(2000)
