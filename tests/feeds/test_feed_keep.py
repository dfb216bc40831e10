"""Daemons that erase what has left the window: from every file, whenever they are killed, and nothing else."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from superfluid.protocol import postcard, requests, responses
from superfluid.protocol.codes import PurgeMode
from superfluid.protocol.records import Entry, Erased, Ingested, Span
from superfluid.protocol.ticks import pack
from superfluid.store.check import damaged_records
from superfluid_cli.client import Client
from tests.durability.house import err, fake, files_below, fork, until
from tests.feeds.pushing import report, settled
from tests.support.daemon import Daemon, generate, tokens_of

KEEP = 0.4


def lines(start: int, stop: int) -> list[str]:
    """Each says a word that no other says, and begins with tokens of its own."""
    return [f"{number * number + 7919 * number:07d} is what entry {number} says" for number in range(start, stop)]


def entries(client: Client, session: int) -> list[Entry]:
    """What of a session's data can be read."""
    bodies = [event.body for event in client.read(session)]
    return [entry for body in bodies if isinstance(body, Ingested | Erased) for entry in body.entries]


def traces(entry: Entry) -> list[bytes]:
    return [entry.text.encode(), postcard.encode(Span, entry.span)[1:], pack(entry.span)]


def on_disk(daemon: Daemon, gone: list[Entry]) -> list[str]:
    """The files that hold something of these entries."""
    found = []
    for path in files_below(daemon.directory):
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            continue  # parked KV comes and goes
        found += [path.name for entry in gone if any(trace in data for trace in traces(entry))]
    return sorted(set(found))


def database(daemon: Daemon):
    (path,) = daemon.sessions.glob("*.db")
    return path


def version(daemon: Daemon) -> int:
    with closing(sqlite3.connect(database(daemon))) as log:
        return int(log.execute("PRAGMA user_version").fetchone()[0])


def window_of(daemon: Daemon, client: Client, session: int) -> set[str]:
    stream = tokens_of(client, session)
    held = pack(stream)
    return {entry.text for entry in entries(client, session) if entry.span and pack(entry.span) in held}


def test_what_leaves_the_window_is_in_no_file(tmp_path):
    with Daemon(tmp_path, worker_argv=fake(), park=True, feed_keep=KEEP) as daemon:
        with daemon.client() as client:
            session = client.ask(requests.Open("feed", 300, False), responses.Opened).session
            client.ask(requests.Push(session, tuple(lines(0, 8))), responses.Pushed)
            settled(client, session)
            first = entries(client, session)
            assert len(first) == 8
            assert on_disk(daemon, first)
            early = client.summary(session).events
            keeper = fork(client, session, early)
            kept = tokens_of(client, keeper)
            for start in range(8, 48, 8):
                client.ask(requests.Push(session, tuple(lines(start, start + 8))), responses.Pushed)
                settled(client, session)
            there = window_of(daemon, client, session)
            passing = [entry for entry in entries(client, session)[8:] if entry.text not in there]
            assert passing
            until(lambda: not on_disk(daemon, passing))
            # the fork has what it was made with, its parent not, but nobody can tell: they share the records
            assert {entry.text for entry in first} == {entry.text for entry in entries(client, keeper)}
            assert tokens_of(client, keeper) == kept
            refused = err(client, requests.Fork(session, early + 1, None))
            assert refused == (
                f"data that session {session} held at event {early + 1} is erased (--feed-keep); go on later"
            )
            assert "erased" in err(client, requests.Trim(session, early + 1))
            again = fork(client, session, client.summary(session).events)
            client.ask(requests.Purge(keeper, 0, PurgeMode.CASCADE), responses.Purged)
            until(lambda: not on_disk(daemon, first))
            stream = tokens_of(client, session)
            told = report(client, session)
            assert (told.taken, told.total_dropped) == (48, 0)
            events = client.read(session)
            assert [event.event_id for event in events] == list(range(len(events)))
            assert {entry.text for entry in entries(client, session)} == window_of(daemon, client, session)
            assert generate(client, again, 4).tokens_generated == 4
        assert not damaged_records(database(daemon))
        assert version(daemon) == 3
        daemon.kill()
        assert not on_disk(daemon, [*first, *passing])
        daemon.start()
        with daemon.client() as client:
            assert tokens_of(client, session) == tokens_of(client, again)[: len(stream)] == stream
            client.ask(requests.Push(session, tuple(lines(48, 56))), responses.Pushed)
            assert settled(client, session).taken == 56
        assert daemon.stop() == 0, daemon.said()
        assert not on_disk(daemon, [*first, *passing])


def parked(daemon: Daemon, entry: Entry) -> bool:
    return any(name.endswith(".park") for name in on_disk(daemon, [entry]))


@pytest.mark.parametrize("park", [True, False])
def test_what_an_earlier_daemon_has_parked(tmp_path, park):
    """Whether the later one knows of it or not: the session goes on without it."""
    with Daemon(tmp_path, worker_argv=fake(), park=True) as daemon:
        with daemon.client() as client:
            session = client.ask(requests.Open("feed", 200, False), responses.Opened).session
            client.ask(requests.Push(session, tuple(lines(0, 6))), responses.Pushed)
            settled(client, session)
            first = entries(client, session)
        assert daemon.stop() == 0, daemon.said()
        assert parked(daemon, first[0])
        (file,) = daemon.sessions.glob("park/*.park")
        old = file.read_bytes()
        with daemon.start().client() as client:
            client.ask(requests.Push(session, tuple(lines(6, 18))), responses.Pushed)
            settled(client, session)
        daemon.kill()
        file.write_bytes(old)  # as if nothing had been parked since
        daemon.settings |= {"park": park, "feed_keep": KEEP}
        with daemon.start().client() as client:
            until(lambda: not on_disk(daemon, first))
            assert not window_of(daemon, client, session) & {entry.text for entry in first}


def test_killed_in_the_middle_of_it(tmp_path):
    """What an earlier daemon kept, for ever by default, a later one erases, in however many lives."""
    said = lines(0, 180)
    with Daemon(tmp_path, worker_argv=fake()) as daemon:
        with daemon.client() as client:
            session = client.ask(requests.Open("feed", 300, False), responses.Opened).session
            for start in range(0, len(said), 6):
                client.ask(requests.Push(session, tuple(said[start : start + 6])), responses.Pushed)
                settled(client, session)
            everything = entries(client, session)
            assert [entry.text for entry in everything] == said
            stream = tokens_of(client, session)
            there = window_of(daemon, client, session)
        assert version(daemon) == 2
        gone = [entry for entry in everything if entry.text not in there]
        daemon.stop()
        daemon.settings["feed_keep"] = 0.1
        for kept in range(len(said) - 30, len(there), -70):
            with daemon.start().client() as client:
                until(lambda: len(entries(client, session)) <= kept)  # noqa: B023 - called here
            daemon.kill()
            assert not damaged_records(database(daemon))
        daemon.start()
        with daemon.client() as client:
            until(lambda: len(entries(client, session)) == len(there))
            until(lambda: not on_disk(daemon, gone))
            assert tokens_of(client, session) == stream
            assert {entry.text for entry in entries(client, session)} == there
            lengths = [n for e in client.read(session) if isinstance(e.body, Erased) for n in e.body.erased]
            assert lengths == [len(entry.span) for entry in gone]
