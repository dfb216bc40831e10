"""A disk that is full: writes are refused, nothing is lost, and the daemon goes on once there is room (line 8)."""

import resource

import psutil
import pytest

from superfluid.protocol import records, requests, responses
from superfluid.protocol.codes import PurgeMode
from tests.durability.disks import LimitedFiles, full_disk
from tests.durability.house import Asked, Following, err, fake, files_below, fork, kinds, until
from tests.support.daemon import GREEDY, create, drawn, generate, say, tokens_of

WORDS = "Some words that take a little room. " * 8


def fill_log(client, session):
    """Let the write-ahead log grow, so that a limit below its size bites."""
    for _ in range(12):
        say(client, session, WORDS)


def refused(client, request):
    message = err(client, request)
    assert message.startswith("io: the session log cannot be written: "), message
    assert "\n" not in message


def the_whole_story(daemon, disk):
    """What must hold on any full disk; the daemon runs, with a slow worker."""
    pid = daemon.process.pid
    with daemon.client() as client:
        idle, busy, parent = create(client), create(client), create(client)
        fill_log(client, parent)
        say(client, idle, "Hello.")
        say(client, busy, "Tell a long story.")
        child = fork(client, parent, 4)
        follower = Following(daemon, busy, provisional=True)
        reply = Asked(daemon, busy, 1500)
        reply.wait_for(2)

        disk.fill(pid)
        assert reply.error().startswith("generation failed: io: the session log cannot be written: ")
        seen = {session: client.read(session) for session in (idle, busy, parent, child)}
        assert [e for e in seen[busy] if isinstance(e.body, records.Generated)] == reply.events
        for _ in range(2):
            refused(client, requests.AppendMessage(idle, 1, WORDS))
            refused(client, requests.Append(idle, WORDS, ()))
            refused(client, requests.Create(None, GREEDY))
            refused(client, requests.Fork(parent, 5, None))
            refused(client, requests.Trim(parent, 5))
            refused(client, requests.SetMeta(idle, 0, WORDS, None))
            refused(client, requests.Purge(parent, 0, PurgeMode.REROOT))
        assert Asked(daemon, idle, 5).error().startswith("io: the session log cannot be written: ")
        assert Asked(daemon, busy, 500).error().startswith("generation failed: io: ")
        # Reads go on, and show what was committed, no more and no less.
        for session, events in seen.items():
            assert client.read(session) == events
            assert client.ask(requests.Inspect(session), responses.Inspection).inspection.events == events
        assert client.ask(requests.Sessions(True), responses.SessionList).sessions[0].meta_version == 0

        disk.free(pid)
        say(client, idle, "There is room again.")
        assert client.ask(requests.SetMeta(idle, 0, "kept", None), responses.Meta).version == 1
        for session in (busy, idle):
            at = len(client.read(session))
            there = drawn(generate(client, session, 40))
            seen[session, at] = there
        assert kinds(client.read(busy)).count("GenerationPrompt") == 1
        assert kinds(client.read(busy)).count("EpochBump") == 0
        until(lambda: len(follower.events) == len(client.read(busy)))
        assert tuple(follower.events) == client.read(busy)
        client.ask(requests.Purge(parent, 0, PurgeMode.REROOT), responses.Purged)
        assert client.read(child)[: len(seen[child])] == seen[child]
        after = {session: client.read(session) for session in (idle, busy, child)}
    assert daemon.stop() == 0

    daemon.start()
    with daemon.client() as client:
        for session, events in after.items():
            assert client.read(session) == events
        # A daemon that knows nothing but the log draws the same: the KV was not ahead of it.
        for key, there in seen.items():
            if isinstance(key, tuple):
                session, at = key
                same = fork(client, session, at)
                assert drawn(generate(client, same, 40)) == there
                assert tokens_of(client, same) == tokens_of(client, session)
        assert "was purged" in err(client, requests.Read(parent, 0))


def test_files_that_may_not_grow(daemons):
    daemon = daemons(worker_argv=fake(delay_us=2000)).start()
    the_whole_story(daemon, LimitedFiles(daemon.sessions))


def test_a_small_disk(daemons, tmp_path):
    with full_disk(tmp_path / "disk") as disk:
        daemon = daemons(disk.directory, worker_argv=fake(delay_us=2000)).start()
        try:
            the_whole_story(daemon, disk)
        finally:
            daemon.close()


@pytest.mark.heavy
def test_the_real_model(daemons):
    daemon = daemons(worker_argv=[], max_context=4096).start()
    the_whole_story(daemon, LimitedFiles(daemon.sessions))


def test_all_lanes_of_a_tick_end_and_those_who_wait_are_told(daemons):
    daemon = daemons(max_batch=3, worker_argv=fake(delay_us=2000)).start()
    disk = LimitedFiles(daemon.sessions)
    with daemon.client() as client:
        sessions = [create(client) for _ in range(5)]
        fill_log(client, sessions[0])
        for session in sessions[1:]:
            say(client, session, "Go.")
        running = [Asked(daemon, session, 1500) for session in sessions[:3]]
        for reply in running:
            reply.wait_for(2)
        waiting = [Asked(daemon, session, 30) for session in sessions[3:]]
        until(lambda: sum(client.ask(requests.Status(), responses.StatusReport).queue) == len(waiting))
        disk.fill(daemon.process.pid)
        for reply in (*running, *waiting):
            assert reply.error().startswith("generation failed: io: ")
            kept = [e for e in client.read(reply.session) if isinstance(e.body, records.Generated)]
            assert kept == reply.events
        disk.free(daemon.process.pid)
        for session in sessions:
            assert generate(client, session, 5).tokens_generated == 5
    assert daemon.stop() == 0


def test_a_disk_that_is_full_at_the_end(daemons):
    daemon = daemons(worker_argv=fake(delay_us=2000)).start()
    disk = LimitedFiles(daemon.sessions)
    with daemon.client() as client:
        session = create(client)
        fill_log(client, session)
        reply = Asked(daemon, session, 1500)
        reply.wait_for(2)
        disk.fill(daemon.process.pid)
        assert daemon.stop() == 0
        reply.error()
    daemon.start()
    with daemon.client() as client:
        kept = client.read(session)
        assert [e for e in kept if isinstance(e.body, records.Generated)] == reply.events
        assert generate(client, session, 3).tokens_generated == 3


def test_a_purge_whose_erasing_does_not_fit_is_told_and_made_good(daemons):
    """The log takes the purge, the database not the zeros: no acknowledgement before the text is gone."""
    daemon = daemons().start()
    with daemon.client() as client:
        filler = create(client)
        for _ in range(40):
            client.call(requests.Append(filler, WORDS * 100, (7, 8, 9)))
    assert daemon.stop() == 0
    daemon.start()
    (database,) = daemon.sessions.glob("*.db")
    secret = "The owl keeps the spare key."
    with daemon.client() as client:
        session = create(client)
        say(client, session, secret)
        child = fork(client, session, 1)
        follower = Following(daemon, session)
        process = psutil.Process(daemon.process.pid)
        process.rlimit(psutil.RLIMIT_FSIZE, (database.stat().st_size // 2, resource.RLIM_INFINITY))
        message = err(client, requests.Purge(session, 0, PurgeMode.REROOT))
        assert message.startswith(f"io: session {session} was purged, but ")
        assert "was purged" in err(client, requests.Read(session, 0))
        assert follower.finish() == "purged"
        assert kinds(client.read(child)) == ["Created", "Forked", "Rerooted"]
        process.rlimit(psutil.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        say(client, child, "Anything.")
        assert not [path for path in files_below(daemon.sessions) if secret.encode() in path.read_bytes()]
    assert daemon.stop() == 0
