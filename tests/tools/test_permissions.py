"""Permissions: a question holds up Generate until it is answered, either way (wire-facts 8.16)."""

import pytest

from superfluid.protocol import records, requests, responses
from tests.support.daemon import create, generate, say
from tests.tools.talk import called, commit, err, events_of, ledger, result


@pytest.mark.parametrize("granted", [True, False])
def test_a_question_holds_up_generate(client, granted):
    session, (call,) = called(client, "Is it raining?")
    event = commit(client, requests.RequestPermission(session, call, "May I?"))
    assert event.body == records.PermissionRequest(call, "May I?")
    pending = f"session {session} has an open permission request"
    assert err(client, requests.Generate(session, 5)).startswith(pending)
    assert err(client, requests.Generate(session, 0)).startswith(pending)
    # appending is not held up
    result(client, session, call, "12 °C, rain")
    assert err(client, requests.Generate(session, 5)).startswith(pending)
    answer = commit(client, requests.RespondPermission(session, event.event_id, granted))
    assert answer.body == records.PermissionResponse(event.event_id, granted)
    assert generate(client, session, 5).tokens_generated == 5
    assert ledger(client, session)[call].state == 2


def test_a_denial_does_nothing_to_the_call(client):
    session, (call,) = called(client, "Is it raining?")
    asked = commit(client, requests.RequestPermission(session, call, "May I?")).event_id
    commit(client, requests.RespondPermission(session, asked, False))
    assert ledger(client, session)[call].state == 0


def test_questions_are_answered_one_by_one(client):
    session = create(client)
    say(client, session, "Hello.")
    first, second = (commit(client, requests.RequestPermission(session, 0, text)).event_id for text in "ab")
    commit(client, requests.RespondPermission(session, second, True))
    assert "open permission request" in err(client, requests.Generate(session, 5))
    unknown = "permission request {} is unknown or already answered"
    assert err(client, requests.RespondPermission(session, second, True)) == unknown.format(second)
    assert err(client, requests.RespondPermission(session, 1, True)) == unknown.format(1)
    commit(client, requests.RespondPermission(session, first, True))
    assert generate(client, session, 5).tokens_generated == 5


def test_a_question_about_a_call_that_is_none(client):
    session = create(client)
    assert "is unknown or already closed" in err(client, requests.RequestPermission(session, 1, "?"))
    assert err(client, requests.RequestPermission(999_999, 0, "?")).startswith("unknown session")


def test_questions_are_refused_and_answers_taken_while_the_session_generates(client, hermes):
    session = create(client)
    say(client, session, "Go on and on.")
    with hermes.client() as other:
        deltas = other.generate(session, 1500)
        next(deltas)
        assert " is generating;" in err(client, requests.RequestPermission(session, 0, "?"))
        assert "unknown or already answered" in err(client, requests.RespondPermission(session, 3, True))
        client.ask(requests.Cancel(session), responses.Cancelling)
        list(deltas)


def test_a_fork_inherits_no_question(client):
    session = create(client)
    say(client, session, "Hello.")
    commit(client, requests.RequestPermission(session, 0, "?"))
    child = client.ask(requests.Fork(session, len(events_of(client, session)), None), responses.Created).session
    assert generate(client, child, 5).tokens_generated == 5
