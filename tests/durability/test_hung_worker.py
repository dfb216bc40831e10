"""The worker hangs without dying; the daemon ends it, says so, and goes on with the next one."""

from superfluid.protocol import requests, responses
from superfluid.protocol.codes import PurgeMode
from tests.durability.house import Asked, fake, flaky, kill_worker, until
from tests.support.daemon import SAMPLED, create, drawn, generate, say, tokens_of

PATIENCE = 3.0
HUNG = "the engine worker hung: no sign of life for 3 s, so it was killed"


def respawns(client):
    return client.ask(requests.Status(), responses.StatusReport).respawns


def test_a_decode_that_never_returns(daemons):
    daemon = daemons(max_batch=1, patience=PATIENCE, worker_argv=fake(hangs_on=60)).start()
    with daemon.client() as client:
        whole, cut, waiting = create(client, SAMPLED), create(client, SAMPLED), create(client)
        for session in (whole, cut, waiting):
            say(client, session, "Tell a long story.")
        uncut = drawn(generate(client, whole, 40))
        reply = Asked(daemon, cut, 40)
        reply.wait_for(1)
        other = Asked(daemon, waiting, 20)
        assert reply.error() == f"generation failed: {HUNG}; what was committed is kept"
        assert other.finish().tokens_generated == 20
        before = sum(len(event.body.span) for event in reply.events)
        generate(client, cut, 40 - before)
        assert tokens_of(client, cut)[-40:] == uncut
        assert respawns(client) == 1
    assert daemon.stop() == 0
    assert f"{HUNG}; starting another" in daemon.said()


def test_a_worker_that_somebody_stopped_while_a_purge_and_a_prompt_wait_for_it(daemons):
    daemon = daemons(patience=PATIENCE, max_context=70_000).start()
    with daemon.client() as client:
        session, gone = create(client), create(client)
        for one in (session, gone):
            say(client, one, "Hello.")
            generate(client, one, 2)
        (worker,) = daemon.workers()
        worker.suspend()
        # Nothing else is owed: the purge alone makes the silence count.
        purged = client.ask(requests.Purge(gone, 0, PurgeMode.REROOT), responses.Purged)
        assert purged.sessions == (gone,)
        until(lambda: not worker.is_running())
        assert generate(client, session, 3).tokens_generated == 3
        (worker,) = daemon.workers()
        worker.suspend()
        # More than a socket takes: the tick cannot even be sent.
        client.ask(requests.Append(session, None, tuple(range(20, 40)) * 3000), responses.Committed)
        assert HUNG in Asked(daemon, session, 3).error()
        assert respawns(client) == 2
    assert daemon.stop() == 0


def test_a_load_that_hangs_counts_as_a_failure(daemons, tmp_path):
    mood = tmp_path / "mood"
    daemon = daemons(patience=PATIENCE, worker_argv=flaky(mood)).start()
    with daemon.client() as client:
        session = create(client)
        say(client, session, "Anybody there?")
        generate(client, session, 3)
        mood.write_text("hang")
        kill_worker(daemon)
        reply = Asked(daemon, session, 3)
        until(lambda: f"did not come back: {HUNG}" in daemon.said())
        mood.write_text("die")
        assert "failed 3 times in a row" in reply.error()
        assert respawns(client) == 3
        mood.unlink()
        assert generate(client, session, 3).tokens_generated == 3
    assert daemon.stop() == 0


def test_a_slow_worker_is_left_alone(daemons):
    daemon = daemons(patience=2.0, worker_argv=fake(delay_us=20_000)).start()
    with daemon.client() as client:
        session = create(client)
        client.ask(requests.Append(session, None, (20, 21)), responses.Committed)
        generate(client, session, 2)
        # The first piece of a prompt takes more than twice the daemon's patience.
        client.ask(requests.Append(session, None, tuple(range(20, 220))), responses.Committed)
        assert generate(client, session, 2).tokens_generated == 2
        assert respawns(client) == 0


def test_the_real_worker_stopped_in_a_decode(daemons):
    daemon = daemons(patience=4.0, worker_argv=[]).start()
    with daemon.client() as client:
        session = create(client)
        say(client, session, "Tell a long story about a lighthouse.")
        generate(client, session, 2)
        reply = Asked(daemon, session, 1000)
        reply.wait_for(1)
        (worker,) = daemon.workers()
        worker.suspend()
        assert "hung: no sign of life for 4 s" in reply.error()
        until(lambda: not worker.is_running())
        assert generate(client, session, 3).tokens_generated == 3
    assert daemon.stop() == 0
