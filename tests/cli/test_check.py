"""`session check`: every database read, nothing changed, with and without somebody who writes."""

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from superfluid.protocol import records
from superfluid.store.check import MOST
from superfluid.store.log import SessionLog
from tests.cli.conftest import Ran
from tests.cli.processes import OnTerminal
from tests.sessions.world import World

Cli = Callable[..., Ran]


@pytest.fixture
def sessions(tmp_path: Path) -> Path:
    folder = tmp_path / "sessions"
    folder.mkdir()
    return folder


def written(path: Path, word: str) -> World:
    """Two sessions of two events; the second event of session 1 holds `word`."""
    world = World()
    log = SessionLog(path)
    log.commit([world.create(), world.create()])
    log.commit([world.write(1, records.Message(1, f"about {word}", (1,)))])
    log.commit([world.write(2, records.Message(1, "about nothing", (2,)))])
    log.close()
    return world


def spoil(path: Path, word: str) -> None:
    data = path.read_bytes()
    assert data.count(word.encode()) == 1
    path.write_bytes(data.replace(word.encode(), word.encode().swapcase()))


def files(folder: Path) -> dict[str, bytes]:
    """What may not change: SQLite's shared memory is no file of records."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.endswith("-shm")}


def test_check_of_what_is_whole(cli: Cli, sessions: Path) -> None:
    written(sessions / "a.db", "rivers")
    before = files(sessions)
    ran = cli("session", "check", "--sessions", str(sessions))
    assert ran == Ran(0, "", "1 database checked: 0 damaged records\n")
    assert files(sessions) == before


def test_check_names_the_damaged(cli: Cli, sessions: Path, env: dict[str, str]) -> None:
    for name, word in (("a", "rivers"), ("b", "towns"), ("c", "hills")):
        written(sessions / f"{name}.db", word)
    spoil(sessions / "a.db", "rivers")
    spoil(sessions / "c.db", "hills")
    before = files(sessions)
    ran = cli("session", "check", "--sessions", str(sessions))
    assert ran == Ran(1, "a.db\t1\t1\nc.db\t1\t1\n", "3 databases checked: 2 damaged records\n")
    with OnTerminal(["session", "check"], env | {"SUPERFLUID_SESSIONS": str(sessions)}) as terminal:
        assert terminal.finish() == 1
    assert "a.db: session 1, event 1 is damaged\r\n" in terminal.output
    assert files(sessions) == before


def test_check_beside_a_writer(cli: Cli, sessions: Path) -> None:
    world = written(sessions / "a.db", "rivers")
    spoil(sessions / "a.db", "rivers")
    log = SessionLog(sessions / "a.db")
    for _ in range(2):
        log.commit([world.write(2, records.Message(1, "still in the write-ahead log", (3,)))])
        before = files(sessions)
        assert cli("session", "check", "--sessions", str(sessions)).out == "a.db\t1\t1\n"
        assert files(sessions) == before
    log.truncate()  # nobody is in its way
    log.close()


def test_check_after_a_crash(cli: Cli, sessions: Path, tmp_path: Path) -> None:
    """The write-ahead log is read, and neither put into the database nor removed."""
    world = written(sessions / "a.db", "rivers")
    log = SessionLog(sessions / "a.db")
    log.commit([world.write(2, records.Message(1, "about towns", (3,)))])
    crashed = tmp_path / "crashed"
    crashed.mkdir()
    for name in ("a.db", "a.db-wal"):
        (crashed / name).write_bytes((sessions / name).read_bytes())
    log.close()
    before = files(crashed)
    assert b"about towns" in before["a.db-wal"]
    assert cli("session", "check", "--sessions", str(crashed)).code == 0
    assert files(crashed) == before


def test_check_goes_on_after_what_cannot_be_read(cli: Cli, sessions: Path) -> None:
    (sessions / "a.db").write_bytes(b"no database, but long enough to look like one " * 99)
    other = sqlite3.connect(sessions / "b.db")
    other.execute("CREATE TABLE t (a)")
    other.close()
    newer = SessionLog(sessions / "c.db")
    newer.close()
    with sqlite3.connect(sessions / "c.db") as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    (sessions / "d.db").mkdir()
    written(sessions / "e.db", "rivers")
    spoil(sessions / "e.db", "rivers")
    ran = cli("session", "check", "--sessions", str(sessions))
    assert (ran.code, ran.out) == (1, "e.db\t1\t1\n")
    said = ran.err.splitlines()
    assert [f"{name}.db" in line for name, line in zip("abcd", said, strict=False)] == [True] * 4
    assert said[4:] == ["5 databases checked: 1 damaged record, 4 unreadable"]


def test_check_of_a_damaged_table_of_sessions(cli: Cli, sessions: Path) -> None:
    for name, wrong in (("a", "pin_deadline_ms = 'x'"), ("b", "events = 1 << 50"), ("c", "events = 'x'")):
        written(sessions / f"{name}.db", "rivers")
        with sqlite3.connect(sessions / f"{name}.db") as connection:
            connection.execute(f"UPDATE heads SET {wrong} WHERE id = 1")
        connection.close()
    ran = cli("session", "check", "--sessions", str(sessions))
    assert ran.code == 1
    assert ran.out.splitlines() == [f"b.db\t1\t{event}" for event in range(2, 2 + MOST)]
    assert ran.err.count("the table of sessions is damaged\n") == 2


def test_check_of_nothing(cli: Cli, sessions: Path, tmp_path: Path) -> None:
    assert cli("session", "check", "--sessions", str(sessions)) == Ran(
        0, "", "0 databases checked: 0 damaged records\n"
    )
    nowhere = tmp_path / "nowhere"
    assert cli("session", "check", "--sessions", str(nowhere)) == Ran(
        1, "", f"superfluid: no sessions directory at {nowhere}\n"
    )
