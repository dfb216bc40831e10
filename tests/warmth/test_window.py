"""A model with a sliding window of 512 tokens: what was said far back, close by, and in a part that was cut away is
known, known, and not known, wherever the KV comes from.

Of an answer the first two tokens are compared, of which the model is sure.
"""

import pytest

from superfluid.protocol import requests, responses
from tests.support.daemon import Daemon, create, generate, tokens_of
from tests.warmth.conftest import NARROW
from tests.warmth.stories import (
    RECALL_BEGINNING,
    append,
    asked,
    filler,
    fork,
    length,
    others_take_turns,
    secret,
    text_of,
    told,
)

WORD, CUT_AWAY = "tiger", "falcon"
KNOWN = f" {WORD}."

WINDOW = 512
WORDS = ("lamp", "stone", "fish", "cloud", "paper", "glass", "horse", "sugar", "door")
WORDS += ("moon", "chair", "bread", "snake", "tower", "coin", "leaf", "drum", "ship")

SHORT, LONG = 34, 82
"""Sentences of filler, 18 to 19 tokens each: 630 and 1,520 tokens."""
CLOSE = 4
"""Sentences between what is close by and the end: 100 tokens with the codeword's own."""


def intro(word):
    return f" {secret(word)}Remember it. "


def computed(client, session):
    """The session, its KV computed, and one token longer by that."""
    generate(client, session, 1)
    return session


def trim(client, session, to):
    return client.ask(requests.Trim(session, to), responses.Created).session


def far_back(client, sentences):
    return computed(client, told(client, "<bos>" + intro(WORD), filler(sentences)))


def close_by(client, sentences):
    return computed(client, told(client, "<bos>" + filler(sentences - CLOSE), intro(WORD), filler(CLOSE)))


def cut_further_than_the_window(client, sentences):
    """Another codeword, and more after it than the window holds, was cut away."""
    kept = "<bos>" + intro(WORD) + filler(sentences // 2)
    return fork(client, computed(client, told(client, kept, intro(CUT_AWAY), filler(SHORT))), 2)


def cut_within_the_window(client, sentences):
    kept = "<bos>" + intro(WORD) + filler(sentences)
    return trim(client, computed(client, told(client, kept, intro(CUT_AWAY), filler(CLOSE))), 2)


def nothing_left(client, sentences):
    """The only codeword was cut away."""
    parent = computed(client, told(client, "<bos>" + filler(sentences), intro(CUT_AWAY), filler(CLOSE)))
    return fork(client, parent, 2)


KEPT_WHOLE = far_back, close_by
CUT_BACK = cut_further_than_the_window, cut_within_the_window
ALL = *KEPT_WHOLE, *CUT_BACK, nothing_left


def answer_of(client, session):
    """What a fork of it says of the codeword, and how many tokens were warm."""
    return asked(client, fork(client, session), RECALL_BEGINNING)


def check(story, answer):
    assert CUT_AWAY not in answer
    if story is not nothing_left:
        assert answer == KNOWN


def evict_all(client):
    """Whoever had a sequence has it no more: three others had a turn."""
    others_take_turns(client, [])


@pytest.fixture
def daemon(tmp_path, gemma):
    with Daemon(tmp_path, model=gemma, **NARROW) as daemon:
        yield daemon


@pytest.mark.parametrize("story", [far_back, cut_further_than_the_window])
def test_a_little_more_than_the_window(daemon, story):
    with daemon.client() as client:
        session = story(client, SHORT)
        answer, warm = answer_of(client, session)
        check(story, answer)
        if story in KEPT_WHOLE:
            assert warm == length(client, session) - 1
        evict_all(client)
        if story in KEPT_WHOLE:
            held = length(client, session)
            answer, warm = asked(client, session, RECALL_BEGINNING)
            assert answer == KNOWN
            assert warm >= held - 1
        else:
            check(story, answer_of(client, session)[0])


def test_host_memory_keeps_only_the_window(daemon):
    """A fork behind the window of what lies in host memory: there, the sliding layers have nothing to attend to."""
    with daemon.client() as client:
        song = " ".join(WORDS * 9 + WORDS[:3])
        session = told(client, "<bos>" + song)
        append(client, session, tokens=tokens_of(client, told(client, filler(60)))[: WINDOW - 2])
        computed(client, session)
        evict_all(client)
        reply = generate(client, fork(client, session, 2), len(WORDS))
    assert text_of(reply).split() == [*WORDS[3:], *WORDS[:3]]


@pytest.mark.heavy
@pytest.mark.parametrize("story", ALL)
def test_three_times_the_window(daemon, story):
    """In memory, after host memory, after a restart, and as a session built from the same tokens in a new daemon."""
    with daemon.client() as client:
        session = story(client, LONG)
        held = length(client, session)
        answer, warm = answer_of(client, session)
        check(story, answer)
        if story in KEPT_WHOLE:
            assert warm == held - 1
        evict_all(client)
        answer, warm = answer_of(client, session)
        check(story, answer)
        if story in KEPT_WHOLE:
            assert warm >= held - 1
    again(daemon)
    with daemon.client() as client:
        answer, warm = answer_of(client, session)
        check(story, answer)
        assert warm == 0
        tokens = tokens_of(client, session)
    again(daemon)
    with daemon.client() as client:
        fresh = create(client)
        append(client, fresh, tokens=tokens)
        answer, warm = asked(client, fresh, RECALL_BEGINNING)
        check(story, answer)
        assert warm == 0
        # The session itself, beside KV of the fresh one that it can take.
        answer, _ = asked(client, session, RECALL_BEGINNING)
        check(story, answer)


def again(daemon):
    """The daemon stops and starts again."""
    assert daemon.stop() == 0
    daemon.start()
