"""Continuing a long session computes only what is new: two thousand tokens, on the embedded model."""

import pytest

from tests.support.daemon import Daemon, create, generate, say, tokens_of
from tests.warmth.stories import RECALL, append, asked, filler, fork, length, secret, told

LENGTH = 2000
PARTS = 8
MIDDLE = 5
"""The event that begins the second half; `Created` is event 0."""

KEPT, CUT_AWAY = "silver", "falcon"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    """Two lanes, so four sequences, and host memory for some long sessions."""
    with Daemon(tmp_path_factory.mktemp("wide"), max_context=4096, max_batch=2, kv_host_bytes=1 << 30) as daemon:
        yield daemon


@pytest.fixture
def client(daemon):
    with daemon.client() as client:
        yield client


@pytest.fixture(scope="module")
def long(daemon):
    """A session of two thousand tokens in eight raw appends, some as text and some as tokens, computed once. Tests
    may add to its end. The first half ends with one codeword, the second begins with another."""
    with daemon.client() as client:
        scratch = told(client, filler(30))
        sentences = tokens_of(client, scratch)
        session = create(client)
        for part in range(PARTS):
            before = length(client, session)
            if part == MIDDLE - 2:
                append(client, session, secret(KEPT))
            elif part == MIDDLE - 1:
                append(client, session, secret(CUT_AWAY) + filler(4))
            else:
                missing = LENGTH * (part + 1) // PARTS - before
                append(client, session, tokens=(sentences * 2)[part : part + missing])
        assert length(client, session) == LENGTH
        assert generate(client, session, 4).warm_prefix == 0
        return session


def twenty_turns(client):
    for number in range(20):
        other = create(client)
        say(client, other, f"What is {number} times {number}?")
        generate(client, other, 2)


def assert_only_new_is_computed(client, session, text=" And then"):
    """The next turn finds everything warm that was there before `text`, but for the token drawn last."""
    prefix = length(client, session)
    _, warm = asked(client, session, text)
    assert prefix - 1 <= warm < length(client, session) - 2


def test_after_a_turn(client, long):
    assert_only_new_is_computed(client, long)
    assert_only_new_is_computed(client, long, " Many years later")


def test_with_nothing_new(client, long):
    prefix = length(client, long)
    assert generate(client, long, 3).warm_prefix == prefix - 1


def test_after_twenty_other_turns(client, long):
    twenty_turns(client)
    assert_only_new_is_computed(client, long)


def test_a_fork_at_the_end(client, long):
    child = fork(client, long)
    assert_only_new_is_computed(client, child)
    assert_only_new_is_computed(client, child)
    assert_only_new_is_computed(client, long)


def test_a_fork_at_the_end_after_twenty_other_turns(client, long):
    twenty_turns(client)
    assert_only_new_is_computed(client, fork(client, long))
    assert_only_new_is_computed(client, long)


def test_a_fork_in_the_middle(client, long):
    child = fork(client, long, MIDDLE)
    prefix = length(client, child)
    assert prefix > LENGTH / 3
    answer, warm = asked(client, child, RECALL)
    assert answer == f" {KEPT}."
    assert warm >= prefix
    assert_only_new_is_computed(client, child)
    assert_only_new_is_computed(client, long)


def test_a_fork_in_the_middle_after_twenty_other_turns(client, long):
    twenty_turns(client)
    child = fork(client, long, MIDDLE)
    prefix = length(client, child)
    answer, warm = asked(client, child, RECALL)
    assert answer == f" {KEPT}."
    assert warm >= prefix
    assert_only_new_is_computed(client, long)


def test_the_middle_again_from_the_same_tokens(client, long, daemons):
    """What the fork answers from kept KV, a session answers that was never anything else, in a new daemon."""
    child = fork(client, long, MIDDLE)
    with daemons().client() as elsewhere:
        fresh = create(elsewhere)
        append(elsewhere, fresh, tokens=tokens_of(client, child))
        assert asked(elsewhere, fresh, RECALL) == (f" {KEPT}.", 0)
    assert asked(client, child, RECALL)[0] == f" {KEPT}."


def test_a_conversation_stays_warm(client):
    """Turn after turn, through the chat template."""
    session = create(client)
    say(client, session, "You are terse.", role=0)
    say(client, session, "Name a river.")
    generate(client, session, 6)
    for question in ("Name a city on it.", "Who lives there?", "What do they eat?"):
        prefix = length(client, session)
        say(client, session, question)
        assert prefix - 1 <= generate(client, session, 6).warm_prefix <= prefix
