"""SIGKILL in the middle of commits: what was said to be committed is there, and nothing is half there."""

import random
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from superfluid.sessions.heads import Heads
from superfluid.store.log import SessionLog
from tests.sessions.reference import Reference

ROOT = Path(__file__).parents[2]

WRITE = """
import random, sys
from pathlib import Path
from superfluid.protocol import records
from superfluid.protocol.codes import PurgeMode
from superfluid.store.log import SessionLog
from tests.sessions.world import World

chance = random.Random(int(sys.argv[2]))
world = World()
log = SessionLog(Path(sys.argv[1]))
log.commit([world.create(), world.create(), world.create()])
print("0 0 0", flush=True)
while True:
    # One number in all sessions of a transaction, so that half of one would show.
    number = chance.randrange(1 << 30)
    sessions = chance.sample(world.living(), min(3, len(world.living())))
    body = records.Appended("x" * chance.choice([10, 500, 20000]), (number,))
    log.commit([world.write(s, body, body, with_snapshot=chance.random() < 0.2) for s in sessions])
    print(number, len(sessions), " ".join(f"{s}:{world.states[s].events}" for s in sessions), flush=True)
    if chance.random() < 0.1:
        log.commit([world.fork(sessions[0], chance.randint(1, world.states[sessions[0]].events))])
    if chance.random() < 0.05 and len(world.living()) > 3:
        purge = world.purge(sessions[0], PurgeMode.REROOT)
        print("purging", sessions[0], flush=True)
        log.purge(purge.purged, purge.rerooted)
        print("purged", sessions[0], flush=True)
    if chance.random() < 0.05:
        log.truncate()
"""


def kill_one(path, seed):
    """Run a writer, kill it at a random moment, and return the lines that it had printed."""
    chance = random.Random(seed)
    child = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", WRITE, str(path), str(seed)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    with child:
        lines = [child.stdout.readline() for _ in range(chance.randint(1, 60))]
        timer = threading.Timer(chance.uniform(0, 0.02), child.kill)
        timer.start()
        lines += child.stdout.readlines()
        timer.join()
    assert child.returncode == -9
    return [line for line in lines if line.endswith("\n")]


def check_one(path, lines):
    log = SessionLog(path)
    heads = Heads(log.heads())
    timelines = {h.id: list(log.read(heads.segments(h.id, 0, h.events))) for h in heads.all_live()}
    assert list(log.check()) == []
    purging = {int(line.split()[1]) for line in lines if line.startswith("purging")}
    purged = {int(line.split()[1]) for line in lines if line.startswith("purged")}
    for head in heads.all_live():
        assert len(timelines[head.id]) == head.events
        assert [event.event_id for event in timelines[head.id]] == list(range(head.events))
        state = log.snapshot(head.id, head.events)
        assert state is None or list(state.tokens) == Reference(timelines[head.id][: state.events]).tokens
        assert head.id not in purged
    for line in lines:
        if not line.startswith("purg") and line != "0 0 0\n":
            number, count, *places = line.split()
            assert len(places) == int(count)
            for place in places:
                session, events = map(int, place.split(":"))
                if session in timelines:
                    assert [e.body.span for e in timelines[session][events - 2 : events]] == [(int(number),)] * 2
                else:
                    assert session in purging
    log.close()


def run(tmp_path, seed):
    path = tmp_path / f"{seed}.db"
    check_one(path, kill_one(path, seed))


@pytest.mark.parametrize("seed", range(4))
def test_what_was_committed_survives_a_kill(tmp_path, seed):
    run(tmp_path, seed)


@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(100, 130))
def test_what_was_committed_survives_thirty_kills(tmp_path, seed):
    run(tmp_path, seed)
