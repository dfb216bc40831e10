"""Bytes that rot: the session that they belong to is refused by name, the others read on (design decision 4)."""

import sqlite3

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from superfluid.protocol import postcard, records
from superfluid.protocol.codes import PurgeMode
from superfluid.protocol.records import EventBody
from superfluid.sessions import snapshot
from superfluid.store.errors import DamagedRecord, StoreError
from superfluid.store.log import SessionLog
from tests.sessions.world import World

BIG = "overflowing " * 2_000


def written(path, *, with_snapshot=False):
    """Three sessions of five events, the third a fork of the second at its end."""
    world = World()
    log = SessionLog(path)
    log.commit([world.create(), world.create()])
    for session in (1, 2):
        log.commit([world.write(session, records.Message(1, f"short {session}", (session,)))])
        log.commit([world.write(session, records.Appended(f"{BIG}{session}", (session, 70_000)))])
    log.commit([world.write(1, records.MetaUpdated(1, "title one", None), with_snapshot=with_snapshot)])
    log.commit([world.write(2, records.MetaUpdated(1, "title two", None))])
    log.commit([world.fork(2, 4)])
    log.close()
    return world


def spoil(path, wanted, place=0, flip=0xFF):
    """Change one byte of `wanted`, `place` bytes after its begin, wherever it lies in the file."""
    data = bytearray(path.read_bytes())
    assert data.count(wanted) == 1
    data[data.index(wanted) + place] ^= flip
    path.write_bytes(data)


def read(log, world, session):
    return list(log.read(world.heads.segments(session, 0, 9_999)))


def body_of(world, session, event):
    return postcard.encode(EventBody, world.timelines[session][event].body)


@pytest.mark.parametrize("place", [0, 1, 5, -1])
@pytest.mark.parametrize("event", [1, 3])
def test_a_damaged_body_is_named(path, event, place):
    world = written(path)
    body = body_of(world, 1, event)
    spoil(path, body, place % len(body))
    log = SessionLog(path)
    with pytest.raises(DamagedRecord, match=f"session 1, event {event}"):
        read(log, world, 1)
    assert list(log.read(world.heads.segments(1, 0, event))) == world.timelines[1][:event]
    assert read(log, world, 2) == world.timelines[2]
    assert read(log, world, 3) == world.timelines[3]
    assert [(d.session, d.event) for d in log.check()] == [(1, event)]
    log.close()


def test_what_a_fork_inherits_is_named_by_its_owner(path):
    world = written(path)
    spoil(path, body_of(world, 2, 1))
    log = SessionLog(path)
    for session in (2, 3):
        with pytest.raises(DamagedRecord, match="session 2, event 1"):
            read(log, world, session)
    assert [(d.session, d.event) for d in log.check()] == [(2, 1)]
    log.close()


def test_a_long_body_is_covered_to_its_last_page(path):
    world = written(path)
    spoil(path, b"overflowing 1", 12)
    log = SessionLog(path)
    with pytest.raises(DamagedRecord, match="session 1, event 2"):
        read(log, world, 1)
    log.close()


def test_check_finds_exactly_the_damaged_ones(path):
    world = written(path)
    spoil(path, body_of(world, 1, 1))
    spoil(path, body_of(world, 1, 3))
    spoil(path, b"overflowing 2", 12)
    log = SessionLog(path)
    assert [(d.session, d.event) for d in log.check()] == [(1, 1), (1, 3), (2, 2)]
    log.close()


def test_check_ends_where_a_rerooted_session_is_damaged_in_what_it_took_over(path):
    world = written(path)
    log = SessionLog(path)
    purge = world.purge(2, PurgeMode.REROOT)
    log.purge(purge.purged, purge.rerooted)
    log.close()
    spoil(path, b"short 2")
    log = SessionLog(path)
    found = log.check()
    assert [(d.session, d.event) for d in (next(found), next(found, None)) if d] == [(3, 1)]
    with pytest.raises(DamagedRecord, match="session 3, event 1"):
        list(log.read(world.heads.segments(3, 5, 6)))  # its `Rerooted`, which repeats the prefix
    log.close()


def test_a_damaged_title_is_not_shown(path):
    world = written(path)
    spoil(path, b"title one", 6, 1)
    log = SessionLog(path)
    assert [head.title for head in log.heads()] == [None, "title two", None]
    assert log.head(1).title is None
    with pytest.raises(DamagedRecord, match="session 1, event 3"):
        read(log, world, 1)
    log.close()


def test_a_damaged_snapshot_is_none(path):
    world = written(path, with_snapshot=True)
    dumped = snapshot.dump(world.states[1])
    log = SessionLog(path)
    assert log.snapshot(1, 4) == world.states[1]
    assert log.snapshot(1, 3) is None
    log.close()
    spoil(path, dumped, 7)
    log = SessionLog(path)
    assert log.snapshot(1, 4) is None
    assert read(log, world, 1) == world.timelines[1]
    assert list(log.check()) == []
    log.commit([world.write(1, records.EpochBump(), with_snapshot=True)])
    assert log.snapshot(1, 9) == world.states[1]
    log.close()


def test_a_damaged_page_of_snapshots_holds_up_nobody(path):
    world = written(path, with_snapshot=True)
    page = 4096
    data = path.read_bytes()
    at = data.index(snapshot.dump(world.states[1])) // page * page
    spoil(path, data[at : at + page])  # no page of a table begins like that
    log = SessionLog(path)
    for _ in range(2):
        log.commit([world.write(session, records.EpochBump(), with_snapshot=True) for session in (1, 2)])
    assert [log.snapshot(session, 9) for session in (1, 2)] == [None, None]
    for session in (1, 2, 3):
        assert read(log, world, session) == world.timelines[session]
    with pytest.raises(StoreError, match="malformed"):  # whoever erases has to know
        log.renew_snapshot(1, 6, b"what is left")
    log.close()


def test_a_broken_chain_of_pages_hits_one_session(path):
    """SQLite itself refuses the row then, and with it the page of rows that it is asked for in."""
    world = written(path)
    page = 4096
    data = path.read_bytes()
    at = data.index(b"overflowing 1") // page * page  # the last page of the long body
    to_it = (at // page + 1).to_bytes(4, "big")
    chained = [n for n in range(0, len(data), page) if data[n : n + 4] == to_it]
    spoil(path, data[chained[0] : chained[0] + page], 1, 0x7F)
    log = SessionLog(path)
    with pytest.raises(DamagedRecord, match="session 1, event 2"):
        read(log, world, 1)
    assert list(log.read(world.heads.segments(1, 0, 2))) == world.timelines[1][:2]
    assert list(log.read(world.heads.segments(1, 3, 4))) == world.timelines[1][3:]
    assert read(log, world, 3) == world.timelines[3]
    assert [(d.session, d.event) for d in log.check()] == [(1, 2)]
    log.close()


def assert_right_or_refused(path, world):
    """Whatever rots, a reader gets what was written or one of two errors: no other data, no other exception."""
    try:
        log = SessionLog(path)
    except StoreError:
        return
    try:
        for session in (1, 2, 3):
            try:
                assert read(log, world, session) == world.timelines[session]
            except (DamagedRecord, StoreError):
                pass
            try:
                state = log.snapshot(session, 9)
                assert state is None or state == world.states[session]
            except StoreError:
                pass
        try:
            assert len(list(log.check())) <= 14
            assert {head.title for head in log.heads()} <= {"title one", "title two", None}
        except StoreError:
            pass
    finally:
        log.close()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The bytes of a log, written once, and its world."""
    path = tmp_path_factory.mktemp("whole") / "model.db"
    world = written(path, with_snapshot=True)
    return path.read_bytes(), world


@pytest.mark.parametrize("place", range(0, 400, 21))
def test_a_damaged_schema_is_refused_in_order(path, whole, place):
    content, world = whole
    path.write_bytes(content)
    spoil(path, b"CREATE TABLE records", place, 0x80)
    assert_right_or_refused(path, world)


@settings(max_examples=80)
@given(data=st.data())
def test_any_flipped_byte_is_noticed_or_without_effect(tmp_path_factory, whole, data):
    path = tmp_path_factory.mktemp("log") / "model.db"
    content, world = whole
    spoiled = bytearray(content)
    # Mostly around a short record, where its header, its numbers and its checksum lie.
    near = spoiled.index(b"short 1") + data.draw(st.integers(-60, 20))
    place = data.draw(st.just(near) | st.integers(0, len(spoiled) - 1))
    spoiled[place] ^= data.draw(st.integers(1, 255))
    path.write_bytes(spoiled)
    assert_right_or_refused(path, world)


def test_the_time_of_a_damaged_record_is_not_known(path):
    world = written(path)
    damage = sqlite3.connect(path)
    damage.execute("UPDATE records SET ts = 'never' WHERE session = 1 AND event = 3")
    damage.commit()
    damage.close()
    log = SessionLog(path)
    assert log.last_ms(world.heads.live(session) for session in (1, 2)) == {
        2: world.timelines[2][-1].ts_unix_ms,
    }
    log.close()
