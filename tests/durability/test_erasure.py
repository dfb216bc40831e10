"""A purge that was acknowledged has erased: text and tokens are in no file below the sessions (acceptance line 7)."""

import random

import pytest

from superfluid.protocol import postcard, records, requests, responses
from superfluid.protocol.codes import PurgeMode
from superfluid.protocol.records import Drop, Replace
from superfluid.protocol.ticks import pack
from superfluid.sessions import snapshot
from tests.durability.house import err, fake, files_below, fork
from tests.support.daemon import SAMPLED, create, generate, say

WORDS = ("amber", "basalt", "cedar", "delta", "ember", "fjord", "granite", "harbour", "iris", "juniper", "larch")


def sentence(chance):
    """One that no other history says."""
    return f"{' '.join(chance.sample(WORDS, 7))} {chance.randrange(10**9)}."


def traces(text, span):
    """All the bytes by which a sentence or its tokens could be found; what is short is said by others too."""
    looked_for = [text.encode()] if text and len(text) > 20 else []
    if len(span) > 6:
        encoded = postcard.encode(records.Span, span)
        looked_for += [encoded, encoded[1 if len(span) < 128 else 2 :], pack(span)]
    return looked_for


def found(directory, looked_for):
    return [
        (path.name, trace) for path in files_below(directory) for trace in looked_for if trace in path.read_bytes()
    ]


def live_a_life(client, session, chance):
    """Some history before the last fork point, with relatives on all sides."""
    say(client, session, sentence(chance))
    for _ in range(chance.randint(0, 5)):
        act = chance.randrange(5)
        if act == 0:
            say(client, session, sentence(chance), role=chance.choice((0, 1, 2)))
        elif act == 1:
            generate(client, session, chance.randint(1, 25))
        elif act == 2:
            client.call(requests.Append(session, sentence(chance), ()))
        elif act == 3:
            fork(client, session, chance.randint(1, client.summary(session).events))
        else:
            start = chance.randint(1, client.summary(session).events - 1)
            edit = Drop(start, start + 1) if chance.random() < 0.5 else Replace(start, start + 1, 1, sentence(chance))
            client.ask(requests.Rebase(session, (edit,), None), responses.Created)


def purge_one(daemon, client, chance):
    """One history from its beginning to its erasure."""
    root = create(client, SAMPLED)
    session = root
    live_a_life(client, session, chance)
    if chance.random() < 0.5:
        session = fork(client, root, chance.randint(1, client.summary(root).events))
        live_a_life(client, session, chance)
    child = fork(client, session, client.summary(session).events)
    inherited = client.read(child)
    point = client.summary(session).events

    secret, title = sentence(chance), sentence(chance)
    say(client, session, secret)
    generate(client, session, chance.randint(10, 30))
    raw = sentence(chance)
    client.call(requests.Append(session, raw, ()))
    client.ask(requests.SetMeta(session, 0, title, None), responses.Meta)
    own = client.read(session)[point:]
    looked_for = [title.encode()]
    for event in own:
        looked_for += traces(getattr(event.body, "text", None), records.span_of(event.body))
    there = {trace for _, trace in found(daemon.sessions, looked_for)}
    assert {secret.encode(), raw.encode(), title.encode()} <= there  # or else this would prove nothing
    spans = [records.span_of(event.body) for event in own if isinstance(event.body, records.Message)]
    assert all(postcard.encode(records.Span, span) in there for span in spans)

    client.ask(requests.Purge(session, 0, PurgeMode.REROOT), responses.Purged)
    assert not found(daemon.sessions, looked_for)
    assert "was purged" in err(client, requests.Read(session, 0))
    kept = client.read(child)
    assert kept[: len(inherited)] == inherited
    assert isinstance(kept[-1].body, records.Rerooted)
    assert generate(client, child, 4).tokens_generated == 4
    if chance.random() < 0.3:
        grandchild = fork(client, child, client.summary(child).events)
        last = sentence(chance)
        event = say(client, grandchild, last).event
        client.ask(requests.Purge(child, 0, PurgeMode.CASCADE), responses.Purged)
        assert not found(daemon.sessions, traces(last, records.span_of(event.body)))
    return looked_for


def purge_many(daemon, seed, count, restart_every):
    chance = random.Random(seed)
    gone = []
    daemon.start()
    for number in range(count):
        with daemon.client() as client:
            gone += purge_one(daemon, client, chance)
        if number % restart_every == restart_every - 1:
            if chance.random() < 0.5:
                daemon.kill()
            else:
                assert daemon.stop() == 0
            assert not found(daemon.sessions, gone)
            daemon.start()
            assert not found(daemon.sessions, gone)


def test_eight_histories(daemons):
    purge_many(daemons(log_filter="debug", worker_argv=fake()), "eight", 8, 5)


@pytest.mark.heavy
def test_fifty_histories(daemons):
    purge_many(daemons(log_filter="debug", worker_argv=fake()), "fifty", 50, 10)


def test_a_snapshot_is_erased_too(daemons):
    """A session of over a thousand events has its tokens in a snapshot, packed."""
    daemon = daemons().start()
    chance = random.Random("snapshot")
    with daemon.client() as client:
        session = create(client)
        secret = sentence(chance)
        span = records.span_of(say(client, session, secret).event.body)
        for _ in range(snapshot.EVERY + 10):
            client.call(requests.Append(session, None, (5, 6)))
        looked_for = traces(secret, span)
        assert {trace for _, trace in found(daemon.sessions, looked_for)} == set(looked_for)
        client.ask(requests.Purge(session, 0, PurgeMode.CASCADE), responses.Purged)
        assert not found(daemon.sessions, looked_for)
    assert daemon.stop() == 0
    assert not found(daemon.sessions, looked_for)


def test_a_purge_in_the_middle_of_a_reply(daemons):
    daemon = daemons(worker_argv=fake(delay_us=3000)).start()
    chance = random.Random("middle")
    with daemon.client() as client, daemon.client() as asking:
        for _ in range(3):
            session = create(client)
            secret = sentence(chance)
            say(client, session, secret)
            reply = asking.generate(session, 1500)
            next(reply)
            client.ask(requests.Purge(session, 0, PurgeMode.REROOT), responses.Purged)
            *deltas, summary = reply
            assert summary.finish == 4
            looked_for = [secret.encode()]
            for event in summary.events:
                looked_for += traces(event.body.text, event.body.span)
            assert not found(daemon.sessions, looked_for)
            assert [delta.event for delta in deltas] == list(summary.events[1:])
