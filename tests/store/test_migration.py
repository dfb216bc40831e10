"""A log of an older build: migrated in one transaction, after a copy was set aside (design decision 39)."""

import sqlite3
from contextlib import closing

import pytest

from superfluid.protocol import records
from superfluid.protocol.codes import PurgeMode
from superfluid.sessions.heads import Heads
from superfluid.store import schema
from superfluid.store.errors import StoreError
from superfluid.store.log import SessionLog
from superfluid.store.schema import VERSION
from tests.sessions.world import World
from tests.store.test_log import read_all

OF_VERSION_1 = ["id", "parent", "fork_at", "own_from", "events", "tokens", "epoch", "title_key", "archived"]
OF_VERSION_1 += [
    "meta_version",
    "generation",
    "purged",
    "open_calls",
    "pin_deadline_ms",
    "born_qos",
    "born_invariant",
]


@pytest.fixture
def old(path):
    """A database of version 1, and what is in it."""
    world, log = World(), SessionLog(path)
    log.commit([world.create()])
    log.commit([world.write(1, records.Message(1, "kept text", (1, 2)), records.MetaUpdated(1, "a title", None))])
    log.commit([world.fork(1, 2)])
    log.commit([world.write(2, records.Message(1, "of the fork", (3,)), with_snapshot=True)])
    log.commit([world.fork(1, 3)])
    purge = world.purge(1, PurgeMode.REROOT)
    log.purge(purge.purged, purge.rerooted)
    log.close()
    downgrade(path)
    return world


def downgrade(path):
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        columns = [row[1] for row in database.execute("PRAGMA table_info(heads)")]
        assert columns[: len(OF_VERSION_1)] == OF_VERSION_1
        for column in columns[len(OF_VERSION_1) :]:
            database.execute(f"ALTER TABLE heads DROP COLUMN {column}")
        database.execute("PRAGMA user_version = 1")


def version_of(path):
    with closing(sqlite3.connect(path)) as database:
        return database.execute("PRAGMA user_version").fetchone()[0]


def test_nothing_is_lost_and_the_old_one_stays_beside_it(path, old):
    log = SessionLog(path)
    assert version_of(path) == VERSION
    assert [(head.id, head.events, head.title) for head in log.heads()] == [
        (head.id, head.events, head.title) for head in old.all_heads()
    ]
    assert read_all(log, old) == old.timelines
    named = old.write(2, records.Named("cpu"), records.FeedOpened(100, True))
    log.commit([named])
    log.close()
    log = SessionLog(path)
    assert log.head(2).feed == named.head.feed
    assert Heads(log.heads()).named("cpu") == 2
    log.close()
    copies = [file for file in path.parent.iterdir() if file.name != path.name]
    assert [copy.name for copy in copies] == ["model.db.version-1"]
    assert copies[0].stat().st_mode & 0o777 == 0o600
    assert version_of(copies[0]) == 1
    assert b"kept text" in copies[0].read_bytes()


def test_when_sessions_were_made_is_read_from_their_records(path, old):
    log = SessionLog(path)
    # a child that was cut loose holds its parent's first record, and counts from there
    born = {session: old.own[session][min(old.own[session])].ts_unix_ms for session in old.living()}
    assert {head.id: head.born_ms for head in log.heads() if not head.purged} == born
    log.close()


def test_a_purge_removes_the_copy(path, old):
    log = SessionLog(path)
    purge = old.purge(2, PurgeMode.CASCADE)
    log.purge(purge.purged, purge.rerooted)
    assert not any("version" in file.name for file in path.parent.iterdir())
    left = b"".join(file.read_bytes() for file in path.parent.iterdir())
    assert b"of the fork" not in left
    log.close()


def test_a_copy_is_removed_for_good(path, old, monkeypatch):
    """A power cut brings back what is removed from a directory that was not written yet."""
    log = SessionLog(path)
    copy = path.with_name("model.db.version-1")
    assert copy.exists()
    written = []
    monkeypatch.setattr(schema, "_sync", lambda place: written.append((place, copy.exists())))
    log.erase_rest()
    assert written == [(path.parent, False)]
    log.erase_rest()
    assert len(written) == 1
    log.close()


def test_a_copy_that_was_not_finished_is_made_again(path, old):
    unfinished = path.with_name("model.db.version-1.unfinished")
    unfinished.write_bytes(b"half")
    SessionLog(path).close()
    assert not unfinished.exists()
    assert version_of(path.with_name("model.db.version-1")) == 1


def test_without_a_copy_there_is_no_migration(path, old):
    path.with_name("model.db.version-1.unfinished").mkdir()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="unfinished"):
        SessionLog(path)
    assert path.read_bytes() == before
    assert version_of(path) == 1


def test_a_new_database_has_no_copy(path):
    SessionLog(path).close()
    assert [file.name for file in path.parent.iterdir()] == [path.name]
