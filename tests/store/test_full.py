"""A disk that is full: the commit says so, nothing of it is kept, and the log goes on once there is room."""

import subprocess
import sys
from pathlib import Path

import pytest

from superfluid.protocol import records
from superfluid.protocol.codes import PurgeMode
from superfluid.store.errors import StoreError
from tests.sessions.world import World
from tests.store.test_log import read_all

ROOT = Path(__file__).parents[2]

LIMITED = """
import resource, signal, sys
from pathlib import Path
from superfluid.protocol import records
from superfluid.store.errors import StoreError
from superfluid.store.log import SessionLog
from tests.sessions.world import World
from tests.store.test_log import read_all

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
limit = int(sys.argv[2])
world = World()
log = SessionLog(Path(sys.argv[1]))
log.commit([world.create()])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
refused = 0
for number in range(60):
    before = world.copy()
    try:
        log.commit([world.write(1, records.Appended("x" * 9000, (number,)), with_snapshot=number % 5 == 0)])
    except StoreError as fault:
        assert "\\n" not in str(fault)
        refused += 1
        world = before
    assert log.heads() == world.all_heads()
    assert read_all(log, world) == world.timelines
    if refused == 3:
        break
assert refused == 3, refused
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
log.commit([world.write(1, records.Appended("there is room again", (1,)))])
log.truncate()
log.close()
log = SessionLog(Path(sys.argv[1]))
assert log.heads() == world.all_heads()
assert read_all(log, world) == world.timelines
assert list(log.check()) == []
log.close()
print("whole")
"""


def allow(log, pages):
    held = log._writer.execute("PRAGMA page_count").fetchone()[0]
    log._writer.execute(f"PRAGMA max_page_count = {held + pages}")


@pytest.mark.parametrize("room", [0, 1, 7, 20])
def test_nothing_of_a_refused_commit_is_kept(log, path, room):
    world = World()
    log.commit([world.create(), world.create()])
    before = world.copy()
    allow(log, room)
    changes = [
        world.write(2, records.Appended("small", (1,))),
        world.write(1, *[records.Appended("x" * 5000, (n,)) for n in range(40)], with_snapshot=True),
    ]
    for _ in range(2):
        with pytest.raises(StoreError, match="full"):
            log.commit(changes)
        assert log.heads() == before.all_heads()
        assert read_all(log, before) == before.timelines
    allow(log, 10_000)
    log.commit([before.write(2, records.Appended("later", (1,)))])
    log.commit([before.write(1, *[records.Appended("x" * 5000, (n,)) for n in range(40)])])
    assert log.heads() == before.all_heads()
    assert read_all(log, before) == before.timelines
    assert list(log.check()) == []


def test_a_purge_without_room_for_what_a_child_takes_over(log):
    world = World()
    log.commit([world.create()])
    log.commit([world.write(1, records.Appended("x" * 50_000, (1,)))])
    log.commit([world.fork(1, 2)])
    before = world.copy()
    allow(log, 2)
    purge = world.purge(1, PurgeMode.REROOT)
    with pytest.raises(StoreError, match="full"):
        log.purge(purge.purged, purge.rerooted)
    assert log.heads() == before.all_heads()
    assert read_all(log, before) == before.timelines
    allow(log, 10_000)
    log.purge(purge.purged, purge.rerooted)
    assert read_all(log, world) == world.timelines


@pytest.mark.parametrize("limit", [150_000, 211_111])
def test_a_file_that_may_not_grow(path, limit):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", LIMITED, str(path), str(limit)],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("whole\n", "", 0)
