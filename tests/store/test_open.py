"""Opening: file modes, versions, and files that are no log of ours."""

import os
import sqlite3
from contextlib import closing

import pytest

from superfluid.protocol import records
from superfluid.store.errors import StoreError
from superfluid.store.lock import DirectoryLock
from superfluid.store.log import SessionLog
from superfluid.store.schema import ERASING
from tests.sessions.world import World

NOBODY = 65534


@pytest.fixture(params=[0o000, 0o022, 0o077, 0o177, 0o777], ids=oct)
def umask(request):
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.fixture
def unprivileged():
    """The rights of an ordinary user, also where the tests run as root."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(NOBODY)
    yield
    if before == 0:
        os.seteuid(0)


def modes(directory):
    return {file.name: oct(file.stat().st_mode & 0o777) for file in directory.iterdir()}


def test_files_are_the_owners_whatever_the_umask(tmp_path, umask):
    log = SessionLog(tmp_path / "model.db")
    lock = DirectoryLock.acquire(tmp_path, tmp_path / "socket")
    log.commit([World().create()])
    names = ("model.db", "model.db-shm", "model.db-wal", "serve.lock")
    assert modes(tmp_path) == dict.fromkeys(names, "0o600")
    log.close()
    lock.release()


def test_files_that_others_could_read_are_closed_to_them(tmp_path):
    SessionLog(tmp_path / "model.db").close()
    (tmp_path / "serve.lock").touch()
    for file in tmp_path.iterdir():
        file.chmod(0o644)
    log = SessionLog(tmp_path / "model.db")
    DirectoryLock.acquire(tmp_path, tmp_path / "socket").release()
    log.commit([World().create()])
    assert set(modes(tmp_path).values()) == {"0o600"}
    log.close()


def test_a_newer_version_is_refused_and_left_alone(path):
    SessionLog(path).close()
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"PRAGMA user_version = {ERASING + 1}")
    before = path.read_bytes()
    with pytest.raises(StoreError, match=rf"newer build: its version is {ERASING + 1}, this build reads {ERASING}$"):
        SessionLog(path)
    assert path.read_bytes() == before


def test_somebody_elses_database_is_refused_and_left_alone(path):
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE bookmarks (url TEXT)")
    before = path.read_bytes()
    with pytest.raises(StoreError, match="is a database, but no session log"):
        SessionLog(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "content", [b"not a database at all, and longer than a header of SQLite's\n" * 40, b"short\n"]
)
def test_a_file_that_is_no_database_is_refused_in_one_line(path, content):
    path.write_bytes(content)
    with pytest.raises(StoreError) as refused:
        SessionLog(path)
    assert str(refused.value) == f"{path}: file is not a database"
    assert path.read_bytes() == content


def test_an_empty_file_becomes_a_log(path):
    path.touch()
    log = SessionLog(path)
    assert log.heads() == ()
    assert len(log.store_id) == 16
    log.close()


def test_places_where_no_file_can_be(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "directory").mkdir()
    for place in ("missing/model.db", "file/model.db", "directory"):
        with pytest.raises(StoreError) as refused:
            SessionLog(tmp_path / place)
        assert str(tmp_path / place) in str(refused.value)
        assert "\n" not in str(refused.value)
    for place in ("missing", "file"):
        with pytest.raises(StoreError, match=str(tmp_path / place)):
            DirectoryLock.acquire(tmp_path / place, tmp_path / "socket")


def test_a_directory_without_rights(tmp_path, unprivileged):
    closed = tmp_path / "closed"
    if os.geteuid() != NOBODY:
        closed.mkdir(0o500)
    with pytest.raises(StoreError, match="Permission denied"):
        SessionLog(closed / "model.db")
    with pytest.raises(StoreError, match="Permission denied"):
        DirectoryLock.acquire(closed, tmp_path / "socket")


def test_a_second_log_in_the_process_leaves_the_first_its_locks(path):
    world = World()
    first = SessionLog(path)
    first.commit([world.create()])
    second = SessionLog(path)
    assert second.heads() == world.all_heads()
    second.close()
    first.commit([world.write(1, records.EpochBump())])
    assert first.heads() == world.all_heads()
    assert first.store_id == first.store_id
    first.close()
