"""Sessions come back warm from wherever their KV lies: sequences, host memory, disk. Counts only."""

import threading

import pytest

from tests.parks.conftest import ask, words
from tests.support.daemon import FAKE, create, tokens_of
from tests.warmth.stories import append, filler, fork, length, told

SESSIONS = 24
LENGTH = 300
FEW = 2
"""Tokens before the new ones that may have to be computed again: the last one drawn has no KV yet."""


def visit_all(client, sessions):
    """A turn of each: what was drawn, where every session must come warm up to what is new."""
    answers = {}
    for session in sessions:
        before = length(client, session)
        answers[session], warm = ask(client, session, words(session, 5))
        assert warm >= before - FEW
    return answers


def first_visits(client, each):
    sessions = [create(client) for _ in range(SESSIONS)]
    for session in sessions:
        _, warm = ask(client, session, words(session, LENGTH))
        assert warm == 0
        each(session)
    return sessions


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"worker_argv": FAKE}, id="fake"),
        pytest.param({"worker_argv": FAKE, "kv_host_bytes": 3000}, id="fake, little host memory"),
        pytest.param({}, id="llama", marks=pytest.mark.heavy),
    ],
)
def test_many_sessions_over_few_lanes(parked, settings):
    made = parked(max_batch=8, max_context=512, **settings)
    with made.daemon.client() as client:
        # Where host memory holds two sessions, the others are found on disk: once they are there.
        sessions = first_visits(client, made.written if "kv_host_bytes" in settings else lambda session: None)
        visit_all(client, sessions)
    with made.restart().client() as client:
        assert made.files().keys() == set(sessions)
        visit_all(client, sessions)
        told_before = {session: tokens_of(client, session) for session in sessions}
    # Killed, it has on disk what it happened to have; answers are what they would have been.
    made.daemon.kill()
    with made.daemon.start().client() as client:
        for session in sessions[:: 1 if "worker_argv" in settings else 8]:
            assert tokens_of(client, session) == told_before[session]
            drawn, _ = ask(client, session, words(session, 5))
            fresh = create(client)
            assert ask(client, fresh, tokens_of(client, session)[: -len(drawn)])[0] == drawn


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"worker_argv": FAKE}, id="fake"),
        pytest.param({"kv_host_bytes": 1 << 30}, id="llama", marks=pytest.mark.heavy),
    ],
)
def test_forks_compute_their_questions_only(parked, settings):
    """Sixteen forks of a document ask at once."""
    made = parked(max_batch=4, max_context=2048, threads=2, **settings)
    with made.daemon.client() as client:
        document = told(client, filler(82))
        assert length(client, document) > 1500
        ask(client, document, words(0, 1), limit=1)
        document_length = length(client, document)
        forks = [fork(client, document) for _ in range(16)]
        warm = {}

        def question(number, session):
            with made.daemon.client() as own:
                warm[session] = ask(own, session, words(number, 8), limit=2)[1]

        threads = [threading.Thread(target=question, args=pair) for pair in enumerate(forks)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        # The document's last token, which was drawn, is computed by the first or by each.
        assert {warm[session] for session in forks} <= {document_length - 1, document_length}


def test_forks_find_their_parent_s_artifact(parked):
    made = parked(worker_argv=FAKE)
    with made.daemon.client() as client:
        parent = create(client)
        append(client, parent, tokens=words(parent, LENGTH))
        ask(client, parent, words(1, 5))
        middle = fork(client, parent, 2)
        assert length(client, middle) == LENGTH
    with made.restart().client() as client:
        assert made.files().keys() == {parent}
        assert ask(client, middle, words(2, 5))[1] == LENGTH
        late = fork(client, parent)
        before = length(client, late)
        assert ask(client, late, words(3, 5))[1] == before - 1
