"""Leases, and calls over restarts (wire-facts 8.8 and 8.16)."""

import time

from superfluid.protocol import records, requests, responses
from tests.support.daemon import DEADLINE, generate, tokens_of
from tests.tools.talk import asked, bodies_of, called, calls_in, err, events_of, ledger, open_calls, outline, result

HOUR = 3_600_000


def past(deadline_ms: int) -> None:
    """Return once the machine's clock, which is the daemon's too, is past it."""
    give_up = time.monotonic() + DEADLINE
    while time.time_ns() // 1_000_000 <= deadline_ms:
        assert time.monotonic() < give_up
        time.sleep(0.001)


def test_a_lease_follows_each_call_and_ends_with_it(daemons):
    daemon = daemons(tool_lease_ms=1)
    daemon.start()
    with daemon.client() as client:
        session, (first, second) = called(client, "Twice?")
        log = events_of(client, session)
        for call in (first, second):
            event = log[call + 1]
            assert event.body == records.ToolLease(call, event.ts_unix_ms + 1) or (
                # the lease is counted from a moment just before its commit
                event.body.call_id == call
                and event.ts_unix_ms - 1 <= event.body.deadline_unix_ms - 1 <= event.ts_unix_ms
            )
            assert ledger(client, session)[call].lease_deadline_unix_ms == event.body.deadline_unix_ms
        past(log[second + 1].body.deadline_unix_ms)

        # found by a result
        tokens = tokens_of(client, session)
        said = err(client, requests.AppendToolResult(session, first, "x"))
        assert f"the lease of tool call {first} expired" in said
        assert bodies_of(client, session)[-1] == records.ToolExpired(first, "lease expired")
        assert ledger(client, session)[first].state == 5
        assert "is already terminal (expired)" in err(client, requests.AppendToolResult(session, first, "x"))
        assert (ledger(client, session)[first].state, ledger(client, session)[first].late_effects) == (5, 1)
        assert tokens_of(client, session) == tokens

        # swept by the next Generate, also by one that is refused
        commit_question = requests.RequestPermission(session, 0, "?")
        client.ask(commit_question, responses.Committed)
        assert open_calls(client, session) == [second]
        assert "open permission request" in err(client, requests.Generate(session, 5))
        assert bodies_of(client, session)[-1] == records.ToolExpired(second, "lease elapsed")
        assert open_calls(client, session) == []


def test_a_lease_that_has_time_left(daemons):
    daemon = daemons(tool_lease_ms=HOUR)
    daemon.start()
    with daemon.client() as client:
        session = asked(client, "Is it raining?")
        deltas = generate(client, session, 500).events
        (call,) = calls_in(deltas)
        assert outline(bodies_of(client, session))[-3:] == ["ToolUse", "ToolLease", "t"]
        assert "ToolLease" not in {type(event.body).__name__ for event in deltas}
        assert generate(client, session, 1).tokens_generated == 1
        assert open_calls(client, session) == [call]
        result(client, session, call, "x")
        # over a restart, in the middle of a call: the first commit brings an epoch
        session = asked(client, "Twice?")
        generate(client, session, 12)
    daemon.kill()
    daemon.settings["tool_lease_ms"] = HOUR
    daemon.start()
    with daemon.client() as client:
        before = len(events_of(client, session))
        generate(client, session, 500)
        events = events_of(client, session, before)
        assert isinstance(events[0].body, records.EpochBump)
        uses = [event.event_id for event in events if isinstance(event.body, records.ToolUse)]
        leases = [event.body.call_id for event in events if isinstance(event.body, records.ToolLease)]
        assert uses == leases == open_calls(client, session)
        assert len(uses) == 2


def test_calls_outlive_the_daemon(daemons):
    daemon = daemons()
    daemon.start()
    with daemon.client() as client:
        answered, (call,) = called(client, "Is it raining?")
        whole = asked(client, "Is it raining?")
        generate(client, whole, 500)
        cut = asked(client, "Is it raining?")
        size = generate(client, cut, 60)
        assert outline([event.body for event in size.events])[-1] == "c"
        running = asked(client, "Is it raining?")
        deltas = client.generate(running, 500)
        next(deltas)
    daemon.kill()
    daemon.start()
    with daemon.client() as client:
        assert open_calls(client, answered) == [call]
        result(client, answered, call, "12 °C, rain")
        assert generate(client, answered, 500).finish == 1
        want = [body for body in bodies_of(client, whole) if isinstance(body, records.ToolUse)]
        for session in (cut, running):
            generate(client, session, 500)
            bodies = bodies_of(client, session)
            assert [body for body in bodies if isinstance(body, records.ToolUse)] == want
            assert tokens_of(client, session) == tokens_of(client, whole)
            assert _without_epochs(outline(bodies)) == _without_epochs(outline(bodies_of(client, whole)))


def _without_epochs(names):
    kept = []
    for name in names:
        if name != "EpochBump" and (kept[-1:] != [name] or len(name) > 1):
            kept.append(name)
    return kept


def test_a_fork_in_the_middle_of_a_call_makes_it_its_own(daemons):
    daemon = daemons()
    daemon.start()
    with daemon.client() as client:
        session = asked(client, "Is it raining?")
        generate(client, session, 60)
        head = len(events_of(client, session))
        child = client.ask(requests.Fork(session, head, None), responses.Created).session
        for one in (session, child):
            (call,) = calls_in(generate(client, one, 500).events)
            result(client, one, call, "12 °C, rain")
        assert tokens_of(client, session) == tokens_of(client, child)


def test_data_that_wait_for_a_result_do_not_hold_up_the_end(daemons):
    daemon = daemons(drain_timeout=600.0)  # past the deadline of `stop`
    daemon.start()
    with daemon.client() as client:
        session, _ = called(client, "Is it raining?")
        pushed = client.ask(requests.Push(session, ("a line",)), responses.Pushed)
        assert (pushed.pending, pushed.taken) == (1, 0)
    assert daemon.stop() == 0
