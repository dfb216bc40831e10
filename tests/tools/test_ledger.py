"""What becomes of a call: results, outcomes, cancels, and what comes too late (wire-facts 8.16)."""

import pytest

from superfluid.protocol import records, requests, responses
from superfluid.protocol.codes import PurgeMode
from superfluid.protocol.responses import LedgerEntry
from tests.support.daemon import create, tokens_of
from tests.tools.conftest import DEEP
from tests.tools.talk import bodies_of, called, commit, err, events_of, ledger, open_calls, result


@pytest.fixture
def one(client):
    session, (call,) = called(client, "Is it raining?")
    return session, call


def unknown(call):
    return f"tool call {call} is unknown or already closed"


def test_the_ledger_of_an_open_call(client, one):
    session, call = one
    arguments = events_of(client, session)[call].body.arguments
    assert ledger(client, session) == {call: LedgerEntry("get_weather", arguments, 0, False, None, 0)}
    assert DEEP["city"] in arguments
    inspection = client.ask(requests.Inspect(session), responses.Inspection).inspection
    assert inspection.open_tool_calls == ((call, "get_weather", arguments),)
    assert inspection.summary.open_tool_calls == 1


def test_a_result_closes_a_call_once(client, one):
    session, call = one
    result(client, session, call, "x")
    assert ledger(client, session)[call].state == 2
    before = events_of(client, session)
    for request in (
        requests.AppendToolResult(session, call, "y"),
        requests.AppendToolOutcome(session, call, 1, ""),
        requests.RequestToolCancel(session, call),
        requests.RequestPermission(session, call, "?"),
    ):
        assert err(client, request) == unknown(call)
    assert events_of(client, session) == before


def test_calls_that_are_none(client, one):
    session, call = one
    for other in (call + 1, call - 1, 0, 1 << 63):
        assert err(client, requests.AppendToolResult(session, other, "x")) == unknown(other)
        assert err(client, requests.AppendToolOutcome(session, other, 1, "")) == unknown(other)
        assert err(client, requests.RequestToolCancel(session, other)) == unknown(other)
    for request in (
        requests.AppendToolResult(999_999, call, "x"),
        requests.AppendToolOutcome(999_999, call, 1, ""),
        requests.RequestToolCancel(999_999, call),
        requests.OpenToolCalls(999_999),
        requests.Ledger(999_999),
    ):
        assert err(client, request).startswith("unknown session 999999")
    assert ledger(client, create(client)) == {}


@pytest.mark.parametrize(("outcome", "state", "late"), [(1, 3, 3), (2, 4, 6)])
def test_an_outcome_closes_a_call_and_a_late_result_is_noted(client, one, outcome, state, late):
    session, call = one
    tokens = tokens_of(client, session)
    event = commit(client, requests.AppendToolOutcome(session, call, outcome, "no net"))
    assert event.body == records.ToolOutcome(call, outcome, "no net")
    assert ledger(client, session)[call].state == state
    assert open_calls(client, session) == []
    assert err(client, requests.AppendToolOutcome(session, call, outcome, "again")) == unknown(call)
    for count in (1, 2):
        said = err(client, requests.AppendToolResult(session, call, "späte Nachricht"))
        assert f"tool call {call} is already terminal" in said
        assert "recorded as a reconciliation" in said
        entry = ledger(client, session)[call]
        assert (entry.state, entry.late_effects) == (late, count)
    assert bodies_of(client, session)[-1] == records.ToolReconciliation(call, "late result: 16 bytes")
    # nothing of it reached the input
    assert tokens_of(client, session) == tokens
    assert "späte" not in repr(bodies_of(client, session))


def test_unknown_outcomes(client, one):
    session, call = one
    for outcome in (0, 3, 255):
        said = err(client, requests.AppendToolOutcome(session, call, outcome, ""))
        assert said.startswith(f"protocol: unknown tool outcome {outcome}")
    assert open_calls(client, session) == [call]


def test_a_cancel_is_asked_for_and_the_call_stays_open(client, one):
    session, call = one
    for _ in range(2):
        event = commit(client, requests.RequestToolCancel(session, call))
        assert event.body == records.ToolCancelRequested(call)
        entry = ledger(client, session)[call]
        assert (entry.state, entry.cancel_requested) == (1, True)
        assert open_calls(client, session) == [call]
    result(client, session, call, "it was done already")
    entry = ledger(client, session)[call]
    assert (entry.state, entry.cancel_requested) == (2, True)


def test_outcomes_and_cancels_do_not_wait_for_a_generation(client, hermes):
    session, (first, second) = called(client, "Twice?")
    with hermes.client() as other:
        client.ask(requests.AppendMessage(session, 1, "Go on and on."), responses.Committed)
        deltas = other.generate(session, 1000)
        next(deltas)
        commit(client, requests.RequestToolCancel(session, first))
        commit(client, requests.AppendToolOutcome(session, first, 2, ""))
        assert open_calls(client, session) == [second]
        assert ledger(client, session)[first].state == 4
        client.ask(requests.Cancel(session), responses.Cancelling)
        *_, summary = deltas
    assert summary.finish == 4
    events = events_of(client, session)
    assert [event.event_id for event in events] == list(range(len(events)))


def test_a_fork_inherits_no_open_call(client, one):
    session, call = one
    head = len(events_of(client, session))
    child = client.ask(requests.Fork(session, head, None), responses.Created).session
    assert ledger(client, child) == {}
    assert open_calls(client, child) == []
    said = err(client, requests.AppendToolResult(child, call, "x"))
    assert said == f"tool call {call} belongs to an ancestor's timeline"
    assert "ancestor" in err(client, requests.AppendToolOutcome(child, call, 1, ""))
    assert "ancestor" in err(client, requests.RequestToolCancel(child, call))
    assert err(client, requests.AppendToolResult(child, head + 5, "x")) == unknown(head + 5)
    # the parent's own is untouched
    result(client, session, call, "12 °C, rain")


def test_a_rebase_keeps_calls_under_new_ids(client, one):
    session, call = one
    result(client, session, call, "12 °C, rain")
    head = len(events_of(client, session))
    edited = client.ask(
        requests.Rebase(session, (records.Replace(2, 3, 1, "Is it wet?"),), None), responses.Created
    ).session
    (moved,) = ledger(client, edited)
    assert ledger(client, edited)[moved].state == 2
    # a result without its call is a message, a call without its result is open again
    orphan = client.ask(requests.Rebase(session, (records.Drop(call, call + 1),), None), responses.Created).session
    assert records.Message in {type(body) for body in bodies_of(client, orphan, call)}
    assert ledger(client, orphan) == {}
    edits = (records.Replace(2, 3, 1, "Is it wet?"), records.Drop(head - 1, head))
    reopened = client.ask(requests.Rebase(session, edits, None), responses.Created).session
    (again,) = open_calls(client, reopened)
    result(client, reopened, again, "12 °C, rain")
    assert tokens_of(client, reopened) == tokens_of(client, edited)


def test_a_purge_closes_open_calls(client, one):
    session, call = one
    client.ask(requests.Purge(session, 0, PurgeMode.CASCADE), responses.Purged)
    assert err(client, requests.AppendToolResult(session, call, "x")) == f"session {session} was purged"
    assert "was purged" in err(client, requests.Ledger(session))
