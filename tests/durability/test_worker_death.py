"""The worker is killed at the worst moments; the daemon lives on, and so do the sessions (acceptance line 2)."""

import pytest

from superfluid.protocol import records, requests, responses
from superfluid.protocol.codes import PurgeMode
from superfluid_cli.client import ServerSaid
from tests.durability.house import Asked, Following, err, fake, flaky, kept_text, kill_worker, kinds, until
from tests.support.daemon import GREEDY, SAMPLED, create, drawn, generate, say, tokens_of

SLOW = {"delay_us": 4000}


@pytest.mark.parametrize("params", [pytest.param(GREEDY, marks=pytest.mark.heavy), SAMPLED])
def test_a_reply_ends_with_an_error_and_goes_on_where_it_was(daemons, params):
    daemon = daemons(worker_argv=fake(**SLOW)).start()
    with daemon.client() as client:
        whole, cut = create(client, params), create(client, params)
        for session in (whole, cut):
            say(client, session, "Tell a long story.")
        uncut = drawn(generate(client, whole, 120))
        follower = Following(daemon, cut, provisional=True)
        reply = Asked(daemon, cut, 120)
        reply.wait_for(2)
        kill_worker(daemon)
        assert reply.error().startswith("generation failed: the engine worker was killed by SIGKILL")
        kept = client.read(cut)
        assert [e for e in kept if isinstance(e.body, records.Generated)] == reply.events
        until(lambda: len(follower.events) == len(kept))
        assert follower.events == list(kept)
        assert follower.shown.startswith(kept_text(kept))
        before = sum(len(e.body.span) for e in reply.events)
        rest = generate(client, cut, 120 - before)
        events = client.read(cut)
        assert events[: len(kept)] == kept
        assert kinds(events).count("GenerationPrompt") == 1
        assert tokens_of(client, cut)[-120:] == uncut
        assert rest.finish == 2
        assert kinds(events).count("EpochBump") == 0
    assert daemon.stop() == 0


def test_those_who_wait_go_on(daemons):
    daemon = daemons(max_batch=2, worker_argv=fake(**SLOW)).start()
    with daemon.client() as client:
        sessions = [create(client) for _ in range(5)]
        for session in sessions:
            say(client, session, f"Story number {session}.")
        running = [Asked(daemon, session, 1000) for session in sessions[:2]]
        for reply in running:
            reply.wait_for(1)
        waiting = [Asked(daemon, session, 20) for session in sessions[2:]]
        until(lambda: all(" is generating;" in err(client, requests.Append(s, "x", ())) for s in sessions))
        kill_worker(daemon)
        for reply in running:
            assert reply.error().startswith("generation failed: ")
        for reply in waiting:
            assert reply.finish().tokens_generated == 20
        for reply in (*running, *waiting):
            assert client.read(reply.session)[-len(reply.events) :] == tuple(reply.events)


def test_kills_one_after_another(daemons):
    daemon = daemons(worker_argv=fake(**SLOW)).start()
    with daemon.client() as client:
        whole, cut = create(client), create(client)
        for session in (whole, cut):
            say(client, session, "And then?")
        uncut = drawn(generate(client, whole, 200))
        for _ in range(3):
            reply = Asked(daemon, cut, 2000)
            reply.wait_for(1)
            kill_worker(daemon)
            assert reply.error().startswith("generation failed: ")
        assert kinds(client.read(cut)).count("GenerationPrompt") == 1
        got = tuple(t for e in client.read(cut) if isinstance(e.body, records.Generated) for t in e.body.span)
        assert got == uncut[: len(got)]
        assert generate(client, cut, 5).tokens_generated == 5


def test_a_kill_with_cancels_purges_and_newcomers_in_flight(daemons):
    """Whatever the daemon was just telling the worker, its end is noticed once and everybody hears of it."""
    daemon = daemons(worker_argv=fake(delay_us=500)).start()
    with daemon.client() as client:
        for turn in range(6):
            sessions = [create(client) for _ in range(4)]
            for session in sessions:
                say(client, session, "Go.")
            replies = [Asked(daemon, session, 1500) for session in sessions]
            for reply in replies:
                reply.wait_for(1)
            (worker,) = daemon.workers()
            worker.suspend()  # what is sent from now on arrives at nobody
            client.call(requests.Cancel(sessions[turn % 4]))
            worker.kill()
            for reply in replies:
                try:
                    assert reply.finish().finish == 4
                except AssertionError:
                    assert reply.error().startswith("generation failed: ")
            assert generate(client, sessions[0], 3).tokens_generated == 3
            purged = client.ask(requests.Purge(sessions[1], 0, PurgeMode.REROOT), responses.Purged)
            assert purged.sessions == (sessions[1],)


def test_it_gives_up_after_three_failures_and_tries_again_when_asked(daemons, tmp_path):
    mood = tmp_path / "mood"
    daemon = daemons(worker_argv=flaky(mood)).start()
    with daemon.client() as client:
        session = create(client)
        say(client, session, "Anybody there?")
        generate(client, session, 3)
        before = client.read(session)
        mood.write_text("die")
        kill_worker(daemon)
        until(lambda: "did not come back" in daemon.said())
        assert "failed 3 times in a row" in Asked(daemon, session, 3).error()
        until(lambda: "failed 3 times in a row" in daemon.said())
        # Reads, appends, forks, purges need no worker.
        assert client.read(session)[: len(before)] == before
        other = create(client)
        say(client, other, "Still here.")
        assert client.ask(requests.Purge(other, 0, PurgeMode.REROOT), responses.Purged).sessions == (other,)
        with pytest.raises(ServerSaid, match="generation failed: the engine worker failed 3 times in a row"):
            generate(client, session, 3)
        mood.unlink()
        assert generate(client, session, 3).tokens_generated == 3
        # That was a good tick: the count starts anew.
        kill_worker(daemon)
        assert generate(client, session, 3).tokens_generated == 3
    assert daemon.stop() == 0


def test_killed_while_it_loads(daemons, tmp_path):
    mood = tmp_path / "mood"
    daemon = daemons(worker_argv=flaky(mood)).start()
    with daemon.client() as client:
        session, gone = create(client), create(client)
        say(client, session, "Anybody there?")
        mood.write_text("hang")
        kill_worker(daemon)
        until(lambda: len(daemon.workers()) == 1)
        reply = Asked(daemon, session, 4)
        # A worker that loads holds nothing, so a purge does not wait for it.
        client.ask(requests.Purge(gone, 0, PurgeMode.REROOT), responses.Purged)
        kill_worker(daemon)
        mood.unlink()
        assert reply.finish().tokens_generated == 4


def test_stopped_while_no_worker_is_there(daemons, tmp_path):
    mood = tmp_path / "mood"
    daemon = daemons(worker_argv=flaky(mood), drain_timeout=1.0).start()
    with daemon.client() as client:
        session = create(client)
        say(client, session, "Anybody there?")
        mood.write_text("hang")
        kill_worker(daemon)
        until(lambda: len(daemon.workers()) == 1)
        (loading,) = daemon.workers()
        Asked(daemon, session, 4)
        assert daemon.stop() == 0
        assert not loading.is_running()


def test_on_the_real_model(daemons):
    daemon = daemons(worker_argv=[]).start()
    with daemon.client() as client:
        whole, cut = create(client, SAMPLED), create(client, SAMPLED)
        for session in (whole, cut):
            say(client, session, "Tell a long story about a lighthouse.")
        uncut = drawn(generate(client, whole, 40))
        reply = Asked(daemon, cut, 1000)
        reply.wait_for(1)
        kill_worker(daemon)
        assert reply.error().startswith("generation failed: ")
        before = sum(len(e.body.span) for e in reply.events)
        if before < 40:
            generate(client, cut, 40 - before)
        events = client.read(cut)
        assert kinds(events).count("GenerationPrompt") == 1
        got = tuple(t for e in events if isinstance(e.body, records.Generated) for t in e.body.span)
        assert got[:40] == uncut
    assert daemon.stop() == 0
