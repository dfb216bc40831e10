"""A generation that is cut and continued draws what the uncut one would have."""

import pytest

from superfluid.protocol import requests, responses
from superfluid.protocol.codes import Finish
from superfluid.protocol.records import GenParams
from tests.support.daemon import GREEDY, create, drawn, generate, say
from tests.warmth.stories import events, filler, fork, length, others_take_turns, told

SAMPLED = GenParams(0.800000011920929, 0.949999988079071, 0.0, 40, 3)
PIECES = (7, 1, 13, 5, 10, 24)
"""Five cuts; a tick has up to 8 rounds, so some fall inside of one and some between two."""

OPENING = "Once upon a time there was a king who"

both = pytest.mark.parametrize("params", [GREEDY, SAMPLED], ids=["greedy", "sampled"])


def in_pieces(client, session, pieces, between=lambda: None):
    """Draw in pieces: all tokens, and for every piece the tokens before it and how many of them were warm."""
    tokens, warmth = [], []
    for piece in pieces:
        if tokens:
            between()
        before = length(client, session)
        summary = generate(client, session, piece)
        tokens += drawn(summary)
        warmth.append((before, summary.warm_prefix))
        if summary.finish == Finish.END_OF_TURN:
            break
        assert summary.finish == Finish.LENGTH
    assert len(warmth) > 2, "a story that ends this soon proves nothing"
    return tuple(tokens), warmth


def assert_all_warm(warmth):
    """Every piece after the first computed one token, the one drawn last."""
    assert [warm for _, warm in warmth[1:]] == [before - 1 for before, _ in warmth[1:]]


@both
def test_five_cuts(client, params):
    whole = drawn(generate(client, told(client, OPENING, params=params), sum(PIECES)))
    tokens, warmth = in_pieces(client, told(client, OPENING, params=params), PIECES)
    assert tokens == whole
    assert_all_warm(warmth)


@both
def test_five_cuts_of_a_chat_turn(client, params):
    root = create(client, params)
    say(client, root, "Tell me a long story about a king and his three daughters.")
    whole, tokens, warmth = twice(client, root)
    assert tokens == whole
    assert_all_warm(warmth)


@both
def test_five_cuts_with_others_on_the_sequence_in_between(client, params):
    root = told(client, filler(12) + OPENING, params=params)
    others = []
    whole, tokens, warmth = twice(client, root, lambda: others_take_turns(client, others))
    assert tokens == whole
    assert_all_warm(warmth)


def twice(client, root, between=lambda: None):
    """The next turn of two forks, one uncut and one in pieces; what they inherit was computed once for both, since
    how a long prompt is split over batches depends on the machine's pace."""
    at = events(client, root)
    generate(client, root, 1)
    whole = drawn(generate(client, fork(client, root, at), sum(PIECES)))
    return whole, *in_pieces(client, fork(client, root, at), PIECES, between)


def test_the_others_do_take_the_sequence(daemons):
    """The same dance without host memory finds nothing warm: so above, KV came back from there."""
    with daemons(max_batch=1, kv_host_bytes=0).client() as client:
        others = []
        session = told(client, filler(4) + OPENING)
        _, warmth = in_pieces(client, session, PIECES[:3], lambda: others_take_turns(client, others))
    assert [warm for _, warm in warmth] == [0, 0, 0]


@both
def test_cancel_and_continue(narrow, client, params):
    session = told(client, OPENING, params=params)
    start = events(client, session)
    tokens = []
    for _ in range(3):
        reply = client.generate(session, 1500)
        next(reply)
        with narrow.client() as other:
            assert other.call(requests.Cancel(session)) == responses.Cancelling()
        *_, summary = reply
        assert summary.finish == Finish.CANCELLED
        tokens += drawn(summary)
    before = length(client, session)
    last = generate(client, session, 20)
    assert last.warm_prefix == before - 1
    tokens += drawn(last)
    whole = generate(client, fork(client, session, at=start), len(tokens))
    assert tuple(tokens) == drawn(whole)


@both
def test_cancelled_between_other_turns(narrow, client, params):
    """As above, and what was cancelled went to host memory before it goes on."""
    session = told(client, OPENING, params=params)
    start = events(client, session)
    reply = client.generate(session, 1500)
    next(reply)
    with narrow.client() as other:
        other.ask(requests.Cancel(session), responses.Cancelling)
    *_, cancelled = reply
    assert cancelled.finish == Finish.CANCELLED
    others_take_turns(client, [])
    before = length(client, session)
    rest = generate(client, session, 20)
    assert rest.warm_prefix == before - 1
    tokens = drawn(cancelled) + drawn(rest)
    assert tokens == drawn(generate(client, fork(client, session, at=start), len(tokens)))
