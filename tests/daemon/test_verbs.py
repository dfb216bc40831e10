"""The verbs of the session API over the socket, on the embedded model (spec: wire-facts, section 8)."""

import pytest

from superfluid.protocol import records, requests, responses
from superfluid.protocol.codes import PurgeMode
from superfluid.protocol.records import Drop, GenParams, Replace
from superfluid_cli.client import ServerSaid
from tests.support.daemon import GREEDY, SAMPLED, create, drawn, generate, say, tokens_of


def err(client, request) -> str:
    with pytest.raises(ServerSaid) as caught:
        list(client.generate(request.session, request.max_tokens)) if isinstance(
            request, requests.Generate
        ) else client.call(request)
    return str(caught.value)


def events_of(client, session, cursor=0):
    return client.ask(requests.Read(session, cursor), responses.Events).events


def kinds(events):
    return [type(event.body).__name__ for event in events]


def test_a_turn_end_to_end(client):
    session = create(client)
    say(client, session, "You are terse.", role=0)
    say(client, session, "Name three rivers.")
    deltas = list(client.generate(session, 12))
    summary = deltas.pop()
    assert [delta.event for delta in deltas] == list(summary.events)
    assert summary.tokens_generated == len(drawn(summary)) == 12
    assert summary.finish == 2
    events = events_of(client, session)
    assert [event.event_id for event in events] == list(range(len(events)))
    assert kinds(events)[:5] == ["Created", "Message", "Message", "GenerationFingerprint", "GenerationPrompt"]
    assert {*kinds(events)[5:]} == {"Generated"}
    assert [event.body.finish for event in events[5:]] == [0] * (len(events) - 6) + [2]
    assert tokens_of(client, session) == tuple(t for e in events for t in records.span_of(e.body))
    assert events_of(client, session, 4) == events[4:]
    assert events_of(client, session, 10_000) == ()


def test_end_of_turn_stays_in_the_span_and_out_of_the_text(client):
    session = create(client)
    say(client, session, "Say hi.")
    summary = generate(client, session, 200)
    assert summary.finish == 1
    text = "".join(event.body.text for event in summary.events)
    assert text
    assert "<|im_end|>" not in text
    say(client, session, "Again.")
    second = generate(client, session, 4)
    assert second.warm_prefix >= len(tokens_of(client, session)) - second.tokens_generated - 20


def test_zero_tokens_returns_at_once(client):
    session = create(client)
    say(client, session, "Hello.")
    before = events_of(client, session)
    assert generate(client, session, 0) == responses.Generated((), 0, 0, 0)
    assert events_of(client, session) == before


def test_refusals(client):
    assert err(client, requests.Read(999_999, 0)).startswith("unknown session 999999")
    assert err(client, requests.Create(999_999, GREEDY)).startswith("unknown session 999999")
    session = create(client)
    assert "has no content" in err(client, requests.Generate(session, 5))
    assert f"session {session} has no generation in flight" in err(client, requests.Cancel(session))
    assert "unknown message role 3" in err(client, requests.AppendMessage(session, 3, "x"))
    assert err(client, requests.Append(session, None, ())).startswith("protocol: ")
    assert err(client, requests.Append(session, "", ())).startswith("protocol: ")
    assert err(client, requests.AppendSystem(session, None, ())).startswith("protocol: ")
    say(client, session, "Hello.")
    assert "AppendSystem must come before any other turn" in err(client, requests.AppendSystem(session, "x", ()))
    assert "1..=2" in err(client, requests.Fork(session, 3, None))
    assert "1..=2" in err(client, requests.Fork(session, 0, None))
    assert "1..=2" in err(client, requests.Trim(session, 3))
    assert "temperature" in err(client, requests.Fork(session, 1, GenParams(float("nan"), 1.0, 0.0, 0, 0)))
    assert "top_p" in err(client, requests.Create(None, GenParams(0.0, 2.0, 0.0, 0, 0)))
    assert "no subscription 77777" in err(client, requests.Unsubscribe(77_777))
    lacking = err(client, requests.Complete("a", "b", 0, 8))
    assert "no FIM dialect" in lacking
    assert all(name in lacking for name in ("fim_pre", "fim_suf", "fim_mid"))
    assert "unknown QoS class 4" in err(client, requests.SetQos(session, 4, False))


@pytest.mark.parametrize(
    ("edits", "reason"),
    [
        ((), "no edits"),
        ((Drop(0, 2),), "never include Created"),
        ((Drop(2, 2),), "empty range"),
        ((Drop(1, 9),), "beyond the parent's committed events"),
        ((Drop(2, 3), Drop(1, 2)), "must be sorted and non-overlapping"),
        ((Drop(1, 3), Drop(2, 3)), "must be sorted and non-overlapping"),
    ],
)
def test_bad_edits(client, edits, reason):
    session = create(client)
    say(client, session, "One.")
    say(client, session, "Two.")
    assert reason in err(client, requests.Rebase(session, edits, None))
    assert "unknown message role 3" in err(client, requests.Rebase(session, (Replace(1, 2, 3, "x"),), None))


def test_append_raw(client):
    session = create(client)
    event = client.ask(requests.Append(session, "The sky is", ()), responses.Committed).event
    assert event.body.text == "The sky is"
    spanned = client.ask(requests.Append(session, "kept", (1, 2, 3)), responses.Committed).event
    assert spanned.body == records.Appended("kept", (1, 2, 3))
    assert tokens_of(client, session) == (*event.body.span, 1, 2, 3)
    # A raw tail opens no assistant turn.
    generate(client, session, 2)
    assert "GenerationPrompt" not in kinds(events_of(client, session))


def test_tokens_out_of_the_vocabulary_fail_the_lane_and_nothing_else(client):
    session = create(client)
    client.call(requests.Append(session, None, (4_000_000_000,)))
    assert "generation failed: engine lane fault (code 2)" in err(client, requests.Generate(session, 4))
    assert events_of(client, session)[-1].body.finish == 5
    other = create(client)
    say(client, other, "Hello.")
    assert generate(client, other, 2).tokens_generated == 2


def test_a_prompt_over_the_window_is_refused_and_commits_no_opener(client):
    session = create(client)
    client.call(requests.Append(session, None, (5,) * 2048))
    message = err(client, requests.Generate(session, 4))
    assert "2048" in message
    assert kinds(events_of(client, session)) == ["Created", "Appended"]


def test_the_window_ends_a_turn_with_finish_2(client):
    session = create(client)
    client.call(requests.Append(session, None, (5,) * 2040))
    summary = generate(client, session, 100)
    assert (summary.tokens_generated, summary.finish) == (8, 2)


def test_fork_inherits_and_continues_mid_turn(client):
    session = create(client)
    say(client, session, "Count from one to twenty.")
    whole = drawn(generate(client, session, 24))
    events = events_of(client, session)
    cut = next(e.event_id for e in events if isinstance(e.body, records.Generated)) + 1
    child = client.ask(requests.Fork(session, cut, None), responses.Created).session
    inherited = events_of(client, child)
    assert inherited[:cut] == events[:cut]
    assert inherited[cut].body == records.Forked(session, cut, GREEDY)
    assert inherited[cut].epoch == 1
    kept = sum(len(e.body.span) for e in events[:cut] if isinstance(e.body, records.Generated))
    rest = drawn(generate(client, child, 24 - kept))
    assert "GenerationPrompt" not in kinds(events_of(client, child, cut))
    assert len(rest) == 24 - kept
    assert tokens_of(client, child)[-24 : -len(rest)] == whole[:kept]


def test_trim_and_rebase(client):
    session = create(client)
    say(client, session, "One.")
    say(client, session, "Two.")
    say(client, session, "Three.")
    same = client.ask(requests.Trim(session, 4), responses.Created).session
    assert isinstance(events_of(client, same)[4].body, records.Forked)
    shorter = client.ask(requests.Trim(session, 2), responses.Created).session
    assert kinds(events_of(client, shorter)) == ["Created", "Message", "Rebased"]
    edits = (Replace(2, 3, 1, "Zwei."),)
    edited = client.ask(requests.Rebase(session, edits, SAMPLED), responses.Created).session
    events = events_of(client, edited)
    assert kinds(events) == ["Created", "Message", "Rebased", "Message", "Message"]
    assert events[2].body == records.Rebased(session, 2, SAMPLED, edits)
    assert [e.body.text for e in events if isinstance(e.body, records.Message)] == ["One.", "Zwei.", "Three."]
    assert generate(client, edited, 3).tokens_generated == 3


def test_meta_tree_and_lists(client):
    session = create(client)
    child = client.ask(requests.Create(session, GREEDY), responses.Created).session
    assert client.ask(requests.SetMeta(session, 0, "rivers", None), responses.Meta).version == 1
    assert "version 1" in err(client, requests.SetMeta(session, 0, "x", None))
    nodes = dict((node[0], node[1:]) for node in client.ask(requests.Tree(), responses.Tree).nodes)
    assert nodes[child] == (session, 0)
    assert client.ask(requests.SetMeta(session, 1, None, True), responses.Meta).version == 2
    shown = {s.id: s for s in client.ask(requests.Sessions(True), responses.SessionList).sessions}
    assert (shown[session].title, shown[session].archived, shown[session].meta_version) == ("rivers", True, 2)
    hidden = {s.id for s in client.ask(requests.Sessions(False), responses.SessionList).sessions}
    assert session not in hidden
    assert session in client.ask(requests.List(), responses.Sessions).ids
    assert session not in {node[0] for node in client.ask(requests.Tree(), responses.Tree).nodes}
    say(client, session, "Archived sessions still append.")


def test_purge_reroot_keeps_the_children(client):
    session = create(client)
    say(client, session, "Kept by the child.")
    child = client.ask(requests.Fork(session, 2, None), responses.Created).session
    before = events_of(client, child)
    assert "generation 0" in err(client, requests.Purge(session, 3, PurgeMode.REROOT))
    purged = client.ask(requests.Purge(session, 0, PurgeMode.REROOT), responses.Purged).sessions
    assert purged == (session,)
    for request in (requests.Read(session, 0), requests.Generate(session, 1), requests.Fork(session, 1, None)):
        assert "was purged" in err(client, request)
    after = events_of(client, child)
    assert after[: len(before)] == before
    assert after[-1].body == records.Rerooted(session, tuple((e.event_id, e.body) for e in before[:2]))
    assert generate(client, child, 3).tokens_generated == 3


def test_purge_cascade_takes_the_descendants_first(client):
    session = create(client)
    say(client, session, "Gone with the parent.")
    child = client.ask(requests.Fork(session, 2, None), responses.Created).session
    grandchild = client.ask(requests.Fork(child, 1, None), responses.Created).session
    purged = client.ask(requests.Purge(session, 0, PurgeMode.CASCADE), responses.Purged).sessions
    assert purged[-1] == session
    assert purged.index(grandchild) < purged.index(child)
    assert not {session, child, grandchild} & set(client.ask(requests.List(), responses.Sessions).ids)


def test_inspect(client):
    session = create(client, SAMPLED)
    say(client, session, "Hello.")
    inspection = client.ask(requests.Inspect(session), responses.Inspection).inspection
    assert inspection.params == SAMPLED
    assert inspection.summary.events == len(inspection.events) == 2
    assert inspection.summary.tokens == len(inspection.tokens)
    assert (inspection.epoch, inspection.qos_class, inspection.wal_version) == (1, 2, 2)
    assert inspection.tier == responses.Cold()
    assert len(inspection.store_id.value) == 16


def test_qos_is_recorded_and_inherited(client):
    session = create(client)
    say(client, session, "Hello.")
    event = client.ask(requests.SetQos(session, 3, True), responses.Committed).event
    assert event.body == records.QosSet(3, True)
    assert "unknown QoS class 4" in err(client, requests.SetQos(session, 4, False))
    child = client.ask(requests.Fork(session, 2, None), responses.Created).session
    inspection = client.ask(requests.Inspect(child), responses.Inspection).inspection
    assert (inspection.qos_class, inspection.batch_invariant) == (3, True)
    assert generate(client, child, 4).tokens_generated == 4
    assert client.call(requests.SetBackgroundRate(3)) == responses.Ack()
    assert generate(client, child, 4).tokens_generated == 4
    assert client.call(requests.SetBackgroundRate(0)) == responses.Ack()


def test_status(client):
    session = create(client)
    say(client, session, "Hello.")
    generate(client, session, 4)
    report = client.ask(requests.Status(), responses.StatusReport)
    assert (report.lanes, report.context, report.queue) == (4, 2048, (0, 0, 0, 0))
    assert report.running == ()
    assert report.kv_sessions[0] >= 1
    assert report.prefill_rate > 0


def test_busy_while_generating(shared, client):
    session = create(client)
    say(client, session, "Write a very long story.")
    reply = client.generate(session, 1500)
    first = next(reply)
    assert isinstance(first, responses.Delta)
    with shared.client() as other:
        for request in (
            requests.Append(session, "x", ()),
            requests.AppendMessage(session, 1, "x"),
            requests.Generate(session, 1),
        ):
            assert " is generating;" in err(other, request)
        child = other.ask(requests.Fork(session, 2, None), responses.Created).session
        assert isinstance(
            other.ask(requests.Inspect(session), responses.Inspection).inspection.tier, responses.Resident
        )
        assert other.ask(requests.SetMeta(session, 0, "while busy", None), responses.Meta).version == 1
        assert generate(other, child, 2).tokens_generated == 2
        assert other.call(requests.Cancel(session)) == responses.Cancelling()
    *_, summary = reply
    assert summary.finish == 4
    assert events_of(client, session)[-1].body.finish == 4
    assert generate(client, session, 2).finish == 2


def test_a_disconnect_cancels(shared, client):
    session = create(client)
    say(client, session, "Write a very long story.")
    with shared.client() as leaving:
        next(leaving.generate(session, 1500))
    assert wait_for_finish(shared, session)[-1].body.finish == 4
    say(client, session, "Still here.")


def wait_for_finish(daemon, session):
    """Follow the session until a generation has ended."""
    with daemon.client() as watching:
        events = []
        for message in watching.subscribe(session, 0, False):
            if isinstance(message, responses.SubEvent):
                events.append(message.event)
                if isinstance(message.event.body, records.Generated) and message.event.body.finish:
                    return events
    raise AssertionError("the subscription ended before the generation did")


def test_subscription_backlog_live_and_provisional(shared, client):
    session = create(client)
    say(client, session, "Name a colour.")
    with shared.client() as follower:
        messages = follower.subscribe(session, 1, True)
        first = next(messages)
        generate(client, session, 12)
        client.call(requests.Purge(session, 0, PurgeMode.REROOT))
        got = [first, *messages]
    assert isinstance(got[-1], responses.SubEnded)
    assert got[-1].reason == "purged"
    events = [m.event for m in got if isinstance(m, responses.SubEvent)]
    assert [e.event_id for e in events] == list(range(1, len(events) + 1))
    assert isinstance(events[-1].body, records.Purged)
    provisional = "".join(m.text for m in got if isinstance(m, responses.SubProvisional))
    assert provisional == "".join(e.body.text for e in events if isinstance(e.body, records.Generated))
    assert provisional


def test_log_levels(client):
    for directive in ("debug", "superfluid.engine=debug,superfluid.http=off", "info"):
        client.ask(requests.SetLogLevel(directive), responses.Ack)
    for directive, known in (
        ("loud", "debug, info, warn"),
        ("info,superfluid.nobody=debug", "superfluid.engine"),
        ("=info", "logger=level"),
        ("", "expected a level"),
    ):
        refused = err(client, requests.SetLogLevel(directive))
        assert refused.startswith("generation failed: ")
        assert known in refused


def test_metrics(client):
    session = create(client)
    say(client, session, "Hello.")
    generate(client, session, 3)
    client.ask(requests.Pin(session, 60_000), responses.Pinned)
    text = client.ask(requests.Metrics(), responses.Text).text
    names = {line.split(" ")[0].split("{")[0] for line in text.splitlines() if not line.startswith("#")}
    for name in ("ticks_total", "cold_admissions_total", "preemptions_total", "starvation_grants_total"):
        assert f"superfluid_{name}" in names
    for name in ("fim_completions_total", "queue_depth", "ttft_seconds_bucket", "os_pressure_events_total"):
        assert f"superfluid_{name}" in names
    assert "superfluid_pins_held 1.0" in text
    assert 'superfluid_fim_completions_total{result="throttled"} 0.0' in text
    client.ask(requests.Purge(session, 0, PurgeMode.REROOT), responses.Purged)
    assert "superfluid_pins_held 0.0" in client.ask(requests.Metrics(), responses.Text).text


def test_a_pin_is_replaced_also_by_a_shorter_one(client):
    session = create(client)
    long = client.ask(requests.Pin(session, 3_600_000), responses.Pinned).deadline_unix_ms
    short = client.ask(requests.Pin(session, 60_000), responses.Pinned).deadline_unix_ms
    assert short < long
    assert client.ask(requests.Pin(session, (1 << 64) - 1), responses.Pinned).deadline_unix_ms == (1 << 64) - 1
    assert client.ask(requests.Pin(session, 0), responses.Pinned).deadline_unix_ms == 0
    pins = [event.body for event in events_of(client, session) if isinstance(event.body, records.Pinned)]
    assert [pin.deadline_unix_ms for pin in pins] == [long, short, (1 << 64) - 1, 0]
