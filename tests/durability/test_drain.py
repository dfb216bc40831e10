"""SIGTERM and SIGINT: streams end with finish 4, everything is kept, and nobody holds the daemon up (line 9)."""

import signal
import time

import pytest

from superfluid.protocol import records, requests, responses
from superfluid_cli.exits import ConnectionBroken
from tests.durability.house import Asked, Following, Wire, fake, flaky, log_of, until
from tests.support.daemon import DEADLINE, create, generate, say

SLOW = fake(delay_us=4000)


@pytest.mark.parametrize("by", [pytest.param(signal.SIGTERM, marks=pytest.mark.heavy), signal.SIGINT])
def test_streams_end_and_all_is_kept(daemons, by):
    daemon = daemons(max_batch=2, worker_argv=SLOW).start()
    with daemon.client() as client:
        sessions = [create(client) for _ in range(4)]
        for session in sessions:
            say(client, session, "Tell a long story.")
    followers = [Following(daemon, session, provisional=True) for session in (*sessions, sessions[0])]
    replies = [Asked(daemon, session, 1800) for session in sessions]
    until(lambda: sum(len(reply.events) > 0 for reply in replies) == 2)  # two run, two wait
    assert daemon.stop(by) == 0
    seen = {}
    for reply in replies:
        summary = reply.finish()
        assert summary.finish == 4
        assert summary.events[-1].body.finish == 4
        assert list(summary.events) == reply.events
    for follower in followers:
        assert follower.finish() == "publisher closed"
    for reply, follower in zip(replies, followers, strict=False):
        assert follower.events[-len(reply.events) :] == reply.events
        seen[reply.session] = tuple(follower.events)
    assert not daemon.socket.exists()
    daemon.start()
    with daemon.client() as client:
        for session, events in seen.items():
            assert client.read(session) == events
            assert generate(client, session, 3).finish == 2
    assert daemon.stop() == 0


def test_more_signals_change_nothing(daemons):
    daemon = daemons(worker_argv=SLOW).start()
    with daemon.client() as client:
        session = create(client)
        say(client, session, "Tell a long story.")
    reply = Asked(daemon, session, 1800)
    reply.wait_for(1)
    daemon.process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + DEADLINE
    while daemon.process.poll() is None:
        assert time.monotonic() < deadline
        daemon.process.send_signal(signal.SIGINT)
        daemon.process.send_signal(signal.SIGTERM)
        time.sleep(0.002)
    assert daemon.process.returncode == 0
    assert reply.finish().finish == 4
    daemon.start()
    with daemon.client() as client:
        assert client.read(session)[-len(reply.events) :] == tuple(reply.events)


def test_a_client_that_never_reads_holds_nothing_up(daemons):
    daemon = daemons(worker_argv=fake(delay_us=50), drain_timeout=1.0, max_context=16384).start()
    with daemon.client() as client, Wire(daemon) as deaf, Wire(daemon) as deaf_too:
        session = create(client)
        for _ in range(300):
            client.call(requests.Append(session, "words " * 400, (5,)))
        say(client, session, "Go.")
        deaf.send(requests.Subscribe(session, 0, True))
        deaf_too.send(requests.Read(session, 0), requests.Generate(session, 10_000), requests.List())
        reply = create(client)
        say(client, reply, "Hello.")
        assert generate(client, reply, 5).tokens_generated == 5
        assert daemon.stop() == 0


def test_who_waits_for_a_worker_that_stands_still_is_told(daemons):
    daemon = daemons(worker_argv=SLOW, drain_timeout=0.5).start()
    with daemon.client() as client:
        session = create(client)
        say(client, session, "Tell a long story.")
    reply = Asked(daemon, session, 1800)
    reply.wait_for(1)
    (worker,) = daemon.workers()
    worker.suspend()
    assert daemon.stop() == 0
    assert reply.error() == "protocol: the daemon is shutting down"


def test_a_commit_under_way_is_answered(daemons):
    daemon = daemons().start()
    with daemon.client() as client:
        session = create(client)
        said = []

        def say_more():
            while True:
                said.append(say(client, session, "One more."))

        daemon.process.send_signal(signal.SIGTERM)
        with pytest.raises(ConnectionBroken):
            say_more()
    assert daemon.process.wait(DEADLINE) == 0
    daemon.start()
    with daemon.client() as client:
        events = client.read(session)
        assert [event.event for event in said] == list(events[1 : 1 + len(said)])
        assert len(events) <= len(said) + 2


def test_a_generation_that_begins_while_it_stops(daemons):
    """It ends with finish 4 or is refused; it is never cut without a word."""
    daemon = daemons(worker_argv=SLOW).start()
    with daemon.client() as client:
        sessions = [create(client) for _ in range(16)]
        for session in sessions:
            say(client, session, "Go.")
    replies = [Asked(daemon, session, 1800) for session in sessions]
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.process.wait(DEADLINE) == 0
    for reply in replies:
        reply._thread.result()
        if isinstance(reply.end, responses.Generated):
            assert reply.end.finish == 4
        else:
            assert str(reply.end) == "protocol: the daemon is shutting down" or not reply.events, reply.end


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGINT])
def test_stopped_while_the_model_loads(daemons, tmp_path, by):
    mood = tmp_path / "mood"
    mood.write_text("hang")
    daemon = daemons(worker_argv=flaky(mood)).start(ready=False)
    with daemon.client():  # bound, so the log is open and the worker is next
        until(lambda: daemon.workers())
        (loading,) = daemon.workers()
        until(lambda: "flaky_worker" in " ".join(loading.cmdline()))
        assert daemon.stop(by) == 0
    assert not loading.is_running()
    assert not daemon.socket.exists()
    assert "Traceback" not in daemon.said()
    mood.unlink()
    daemon.start()
    assert daemon.stop() == 0


def test_the_log_of_a_stop(daemons):
    daemon = daemons().start()
    with daemon.client() as client:
        session = create(client)
        say(client, session, "A sentence that is nobody's business.")
        generate(client, session, 5)
        text = "".join(e.body.text for e in client.read(session) if isinstance(e.body, records.Generated))
    assert daemon.stop() == 0
    words = log_of(daemon)
    assert "stopped" in words
    assert "nobody's business" not in words
    assert text not in words
