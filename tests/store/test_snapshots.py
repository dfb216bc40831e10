"""Rows of snapshots: written over and over, so that there are few of them, and no file says what an old one said."""

import random
import re
from contextlib import closing

import pytest

from superfluid.protocol import records
from superfluid.sessions import snapshot
from superfluid.store import snapshot_rows
from superfluid.store.log import SessionLog
from superfluid.store.schema import connect
from tests.sessions.world import World

_MARK = re.compile(rb"Zq[0-9a-f]{8}")


def lengths(log):
    """Of all rows, those that are zeroed included."""
    return [length for (length,) in log._read("SELECT length(state) FROM snapshots", ())]


def test_a_session_that_does_not_grow_has_one_row_for_ever(log, path):
    world = World()
    log.commit([world.create()])
    for number in range(300):
        body = records.Message(1, "on and on", tuple(range(100_000, 102_000 + number % 7)))
        log.commit([world.write(1, records.Rewound(0, number), body, with_snapshot=True)])
        assert log.snapshot(1, 9_999) == world.states[1]
        assert log.last_snapshot(1) == world.states[1].events
    assert len(lengths(log)) == 1
    assert lengths(log)[0] < 2 * len(snapshot.dump(world.states[1]))


def test_a_session_that_grows_leaves_a_few_rows_behind(log):
    world = World()
    log.commit([world.create()])
    for number in range(300):
        body = records.Message(1, f"more {number}", tuple(range(100_000, 100_200)))
        log.commit([world.write(1, body, with_snapshot=True)])
    assert log.snapshot(1, 9_999) == world.states[1]
    # Each is half as long again as the one before; as many as there were snapshots would take 150 times the last.
    assert len(lengths(log)) < 20
    assert sum(lengths(log)) < 5 * len(snapshot.dump(world.states[1]))


def test_a_session_that_shrinks_does_not_drag_a_long_row_along(log):
    world = World()
    log.commit([world.create()])
    log.commit([world.write(1, records.Message(1, "long", tuple(range(50_000))), with_snapshot=True)])
    log.commit([world.write(1, records.Rewound(0, 1), with_snapshot=True)])
    assert log.snapshot(1, 9_999) == world.states[1]
    assert lengths(log)[-1] < 10_000


def test_what_comes_back_is_what_was_put_last(log, path):
    """Also after a snapshot of an older build, which has no zeros behind it."""
    world = World()
    log.commit([world.create()])
    log.commit([world.write(1, records.Message(1, "before", (5, 6)))])
    state = snapshot.dump(world.states[1])
    log._writer.execute(
        "INSERT INTO snapshots (session, event, digest, state) VALUES (1, 2, ?, ?)",
        (snapshot_rows.digest_of(1, 2, 0, 0, state), state),
    )
    assert log.snapshot(1, 2) == world.states[1]
    log.commit([world.write(1, records.Message(1, "after", (7,)), with_snapshot=True)])
    log.close()
    again = SessionLog(path)
    assert again.snapshot(1, 9) == world.states[1]
    assert again.snapshot(1, 2) is None
    again.close()


# How many events a snapshot has takes zero to eight bytes of its row, and the row has to keep its size.
STEPS = (1, 1, 50, 127, 32_000, 8_388_000, 1 << 31, 1 << 47)


@pytest.mark.parametrize("seed", range(12))
def test_what_a_snapshot_said_is_in_no_file_after_the_next(path, seed):
    chance = random.Random(seed)
    connection = connect(path, writer=True)
    events, said, number = dict.fromkeys((1, 2, 3), 0), {}, 0
    with closing(connection):
        for _ in range(50):
            number += 1
            session = chance.choice(list(events))
            events[session] += chance.choice(STEPS)
            mark = f"Zq{number:08x}".encode()
            size = int(10 ** chance.uniform(1, 5.3)) if chance.random() < 0.5 else 20_000 + chance.randrange(3000)
            state = (mark * (size // 10 + 1))[: max(size, 10)]
            connection.execute("BEGIN IMMEDIATE")
            snapshot_rows.put(connection, session, events[session], state)
            connection.execute("COMMIT")
            said[session] = mark
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            found = {mark for file in path.parent.iterdir() for mark in _MARK.findall(file.read_bytes())}
            assert found == set(said.values())
        rows = connection.execute("SELECT session, event FROM snapshots WHERE erased = 0 ORDER BY session").fetchall()
        assert rows == [(session, events[session]) for session in sorted(said)]


@pytest.mark.parametrize("event", [1, 2, 128, 40_000, 9_000_000, 3 << 30, 1 << 50])
def test_a_row_keeps_its_size_to_the_byte(path, event):
    """SQLite overwrites it in place only then; else it may move rows about, and leave pieces of them behind."""

    def payload():
        row = "length(state) + length(digest)"
        ((size, before),) = connection.execute(f"SELECT {row}, event FROM snapshots").fetchall()
        # As SQLite's file format has it: an integer takes as many bytes as it needs, 0 and 1 none.
        return size + next(width for width, most in WIDTHS if before <= most)

    with closing(connect(path, writer=True)) as connection:
        snapshot_rows.put(connection, 1, 0, b"x" * 3000)
        before = payload()
        for at in (event, event + 1, 1 << 60):
            snapshot_rows.put(connection, 1, at, b"y" * 3500)
            assert payload() == before
        assert connection.execute("SELECT count(*) FROM snapshots").fetchone() == (1,)


WIDTHS = [(0, 1), (1, 0x7F), (2, 0x7FFF), (3, 0x7FFFFF), (4, 0x7FFFFFFF), (6, 0x7FFFFFFFFFFF), (8, 1 << 62)]
