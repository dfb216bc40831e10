"""The daemon is killed in the middle of replies; nothing that anybody saw committed is lost (acceptance line 3)."""

import pytest

from superfluid.protocol import records
from tests.durability.house import Asked, Following, fake, fork, kept_text, kinds, until
from tests.support.daemon import GREEDY, SAMPLED, create, drawn, generate, say, tokens_of


def prefixes(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)


def die_mid_reply(daemon, session, deltas):
    """Kill the daemon once `deltas` events of a reply are there; what was seen of it."""
    follower = Following(daemon, session, provisional=True)
    reply = Asked(daemon, session, 2000)
    reply.wait_for(deltas)
    daemon.kill()  # asserts that no worker outlives it
    reply.error()
    follower.cut()
    return reply, follower


HEAVY = [pytest.param(deltas, marks=pytest.mark.heavy) for deltas in (1, 2, 3, 5, 13)]


@pytest.mark.parametrize("deltas", [4, *HEAVY])
def test_kept_and_shown_text_are_prefixes_of_each_other(daemons, deltas):
    daemon = daemons(worker_argv=fake(delay_us=1500)).start()
    with daemon.client() as client:
        session = create(client, SAMPLED)
        say(client, session, "Tell a long story.")
        before = client.read(session)
    reply, follower = die_mid_reply(daemon, session, deltas)
    daemon.start()
    with daemon.client() as client:
        kept = client.read(session)
        assert kept[: len(before)] == before
        assert kinds(kept)[len(before) : len(before) + 2] == ["GenerationFingerprint", "GenerationPrompt"]
        said = kept[len(before) + 2 :]
        assert said[: len(reply.events)] == tuple(reply.events)
        assert tuple(follower.events) == kept[: len(follower.events)]
        assert prefixes(kept_text(said), follower.shown)
        assert kept_text(said).startswith(kept_text(reply.events))
        # The open turn goes on: the same draws, no second header.
        generate(client, session, 150)
        after = client.read(session)
        assert kinds(after).count("GenerationPrompt") == 1
        again = create(client, SAMPLED)
        say(client, again, "Tell a long story.")
        got = tuple(t for e in after for t in records.span_of(e.body) if isinstance(e.body, records.Generated))
        assert drawn(generate(client, again, len(got))) == got
    assert daemon.stop() == 0


def test_an_epoch_bump_comes_with_the_first_write_and_not_before(daemons):
    daemon = daemons().start()
    with daemon.client() as client:
        written, forked, left = create(client), create(client), create(client)
        for session in (written, forked, left):
            say(client, session, "Hello.")
        before = {session: client.read(session) for session in (written, forked, left)}
    for restart in (1, 2):
        daemon.kill()
        daemon.start()
        with daemon.client() as client:
            child = fork(client, forked, 2)  # a fork writes to its child alone
            assert kinds(client.read(child)) == ["Created", "Message", "Forked"]
            for session, events in before.items():
                assert client.read(session) == events
            say(client, written, "Again.")
            say(client, written, "And again.")
            events = client.read(written)
            assert kinds(events)[len(before[written]) :] == ["EpochBump", "Message", "Message"]
            assert {event.epoch for event in events[len(before[written]) :]} == {1 + restart}
            before[written] = events
            assert client.read(left) == before[left]
    assert daemon.stop() == 0
    daemon.start()
    with daemon.client() as client:
        for session, events in before.items():
            assert client.read(session) == events


@pytest.mark.heavy
def test_killed_again_before_anything_was_written(daemons):
    daemon = daemons().start()
    with daemon.client() as client:
        session = create(client)
        say(client, session, "Hello.")
        before, tokens = client.read(session), tokens_of(client, session)
    for _ in range(2):
        daemon.kill()
        daemon.start(ready=False)
        daemon.client().close()  # the socket is there before the model is
    daemon.kill()
    daemon.start()
    with daemon.client() as client:
        assert client.read(session) == before
        assert tokens_of(client, session) == tokens


def test_an_orphan_leaves_whatever_it_is_doing(daemons):
    daemon = daemons(worker_argv=fake(delay_us=200000)).start()
    with daemon.client() as client:
        session = create(client)
        say(client, session, "A prompt of some tokens, each of which takes its time.")
        Asked(daemon, session, 5)
        until(lambda: kinds(client.read(session))[-1] == "GenerationPrompt")
    daemon.kill()  # in the middle of a decode of seconds; asserts that the worker is gone


@pytest.mark.heavy
def test_on_the_real_model(daemons):
    daemon = daemons(worker_argv=[]).start()
    with daemon.client() as client:
        session = create(client, GREEDY)
        say(client, session, "Tell a long story about a lighthouse.")
    reply, follower = die_mid_reply(daemon, session, 2)
    daemon.start()
    with daemon.client() as client:
        kept = client.read(session)
        said = [e for e in kept if isinstance(e.body, records.Generated)]
        assert said[: len(reply.events)] == reply.events
        assert prefixes(kept_text(said), follower.shown)
        generate(client, session, 10)
        assert kinds(client.read(session)).count("GenerationPrompt") == 1
    assert daemon.stop() == 0
