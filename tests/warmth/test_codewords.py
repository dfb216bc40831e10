"""Sessions that generate at once each see their own text only."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from superfluid.protocol import responses
from tests.support.daemon import Daemon, generate
from tests.warmth.stories import RECALL, filler, secret, text_of, told

WORDS = ("apple", "river", "tiger", "castle", "silver", "lemon", "rocket", "garden", "violin", "copper")
LEAVERS_WORD = "falcon"
LANES = 8

SHARED_BEGINNING = "Listen carefully to what everyone in our little town has always known. "
"""Long enough to be taken from whoever has computed it already."""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    with Daemon(tmp_path_factory.mktemp("eight"), max_context=512, max_batch=LANES) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def gemma_daemon(tmp_path_factory, gemma):
    with Daemon(tmp_path_factory.mktemp("gemma"), model=gemma, max_context=512, max_batch=LANES) as daemon:
        yield daemon


def codeword(daemon, beginning, word, together, tokens=5):
    """What one session, told a codeword, says of it. Its generation starts when all are ready."""
    with daemon.client() as client:
        session = told(client, beginning + secret(word) + RECALL)
        together.wait(60)
        return text_of(generate(client, session, tokens))


def rounds(daemon, count, bos=""):
    """Eight sessions at once, so often, with new words and without and with a beginning that all share."""
    with ThreadPoolExecutor(LANES) as pool:
        for number in range(count):
            words = [WORDS[(number + lane) % len(WORDS)] for lane in range(LANES)]
            beginning = bos + (SHARED_BEGINNING if number % 2 else "")
            together = threading.Barrier(LANES)
            answers = pool.map(codeword, [daemon] * LANES, [beginning] * LANES, words, [together] * LANES)
            for word, answer in zip(words, answers, strict=True):
                assert answer.startswith(f" {word}")
                assert not [other for other in (*WORDS, LEAVERS_WORD) if other != word and other in answer]


@contextmanager
def a_leaver(daemon, bos=""):
    """A ninth client, which hangs up in the middle of every reply."""
    over = threading.Event()

    def leave_again_and_again():
        left = 0
        while not (over.is_set() and left):
            with daemon.client() as client:
                session = told(client, bos + filler(left % 4) + secret(LEAVERS_WORD) + RECALL)
                assert isinstance(next(client.generate(session, 400)), responses.Delta)
            left += 1
        return left

    with ThreadPoolExecutor(1) as pool:
        leaver = pool.submit(leave_again_and_again)
        try:
            yield
        finally:
            over.set()
        assert leaver.result(120) > 0


def test_eight_at_once_beside_a_leaver(daemon):
    with a_leaver(daemon):
        rounds(daemon, 4)


@pytest.mark.heavy
def test_eight_at_once_beside_a_leaver_for_long(daemon):
    with a_leaver(daemon):
        rounds(daemon, 20)


@pytest.mark.heavy
def test_eight_at_once_beside_a_leaver_on_a_sliding_window(gemma_daemon):
    with a_leaver(gemma_daemon, "<bos>"):
        rounds(gemma_daemon, 6, "<bos>")


def test_alone_and_beside_seven_others(daemon):
    """What the model is sure of, it says in any company; the others' texts are of other lengths."""
    counting = [", ".join(str(number) for number in range(first, first + 10)) + "," for first in range(1, 80, 10)]
    texts = [filler(lane % 3) + text for lane, text in enumerate(counting)]

    def count_on(text, together):
        with daemon.client() as client:
            session = told(client, text)
            together.wait(60)
            return text_of(generate(client, session, 10))

    alone = [count_on(text, threading.Barrier(1)) for text in texts]
    assert [text.split(",")[0].strip() for text in alone] == [str(first + 10) for first in range(1, 80, 10)]
    together = threading.Barrier(LANES)
    with ThreadPoolExecutor(LANES) as pool:
        assert list(pool.map(count_on, texts, [together] * LANES)) == alone
