"""Purges of what is damaged, which can be erased all the same; beside other purges; and of clients that leave."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
import trio
import trio.testing

from superfluid.daemon.log_threads import LogThreads
from superfluid.protocol.codes import PurgeMode
from superfluid.protocol.records import Appended
from superfluid.protocol.refusals import PurgeConflict, SessionDamaged, SessionPurged
from superfluid.protocol.ticks import Forget, park_name
from superfluid.sessions import snapshot
from tests.daemon.still import IDENTITY, Still
from tests.support.daemon import GREEDY

SECRET = "a heron among the reeds"


async def written(still: Still) -> int:
    """A session of four events, of which the third cannot be read."""
    session = await still.branching.create(None, GREEDY)
    async with still.book.writing(session) as state:
        await still.book.commit_one(state, *[Appended(f"{SECRET} {number}", (5, 6)) for number in range(3)])
    return session


def spoil(still: Still, session: int) -> None:
    """As a start finds it."""
    still.log._writer.execute(
        "UPDATE records SET digest = x'0102030405060708' WHERE session = ? AND event = 2", (session,)
    )
    still.book._states.clear()


@pytest.mark.parametrize("mode", PurgeMode)
def test_a_damaged_session_can_be_purged(log, tmp_path, mode):
    async def story() -> None:
        still = Still(log)
        session = await written(still)
        spoil(still, session)
        with pytest.raises(SessionDamaged):
            await still.book.now(session)
        with pytest.raises(PurgeConflict):
            await still.keeping.purge(session, 1, mode)
        assert await still.keeping.purge(session, 0, mode) == (session,)
        with pytest.raises(SessionPurged):
            still.book.live(session)
        head = await still.book.log.ask(lambda log: log.head(session))
        assert head == still.book.heads.any(session)
        assert (head.purged, head.generation, head.events) == (True, 1, 5)
        assert not any(SECRET.encode() in file.read_bytes() for file in tmp_path.iterdir())

    trio.run(story)


def test_a_fork_of_what_is_whole_outlives_it(log):
    async def story() -> None:
        still = Still(log)
        session = await written(still)
        child = await still.branching.fork(session, 2, None)
        spoil(still, session)
        await still.keeping.purge(session, 0, PurgeMode.REROOT)
        events = await still.book.read(child, 0)
        assert [getattr(event.body, "text", None) for event in events[:2]] == [None, f"{SECRET} 0"]
        assert (await still.book.now(child)).tokens.tolist() == [5, 6]

    trio.run(story)


def test_a_fork_that_has_the_damage_keeps_its_parent(log):
    async def story() -> None:
        still = Still(log)
        session = await written(still)
        child = await still.branching.fork(session, 4, None)
        spoil(still, session)
        with pytest.raises(SessionDamaged):
            await still.keeping.purge(session, 0, PurgeMode.REROOT)
        assert len(await still.book.read(session, 0, 2)) == 2
        assert await still.keeping.purge(session, 0, PurgeMode.CASCADE) == (child, session)

    trio.run(story)


def test_a_fork_is_folded_from_its_snapshot_whatever_became_of_what_it_took_over(log):
    """Its `Rerooted` repeats all that; folding needs none of it."""

    async def story() -> None:
        still = Still(log)
        session = await written(still)
        child = await still.branching.fork(session, 4, None)
        state = await still.book.now(child)
        log.renew_snapshot(child, state.events, snapshot.dump(state))
        await still.keeping.purge(session, 0, PurgeMode.REROOT)
        whole = await still.book.now(child)
        spoil(still, child)
        assert await still.book.now(child) == whole
        assert whole.parent is None
        with pytest.raises(SessionDamaged):
            await still.book.read(child, 0)

    trio.run(story)


# --- beside other purges --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", PurgeMode)
def test_a_session_and_its_fork_are_purged_at_once(log, mode):
    async def story() -> None:
        still = Still(log)
        session = await written(still)
        child = await still.branching.fork(session, 2, None)
        async with trio.open_nursery() as nursery, still.book.turn(child):
            nursery.start_soon(still.keeping.purge, child, 0, PurgeMode.REROOT)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(still.keeping.purge, session, 0, mode)
            await trio.testing.wait_all_tasks_blocked()
        for purged in (session, child):
            with pytest.raises(SessionPurged):
                still.book.live(purged)
        assert not still.book.fenced

    trio.run(story)


def test_a_fork_whose_purge_comes_to_nothing_has_what_it_inherited(log):
    async def story() -> None:
        still = Still(log)
        session = await written(still)
        child = await still.branching.fork(session, 2, None)
        still.book.fenced.add(child)  # its purge waits for what it draws, and will not wait for ever
        assert await still.keeping.purge(session, 0, PurgeMode.REROOT) == (session,)
        still.book.fenced.remove(child)
        *inherited, _, _ = await still.book.read(child, 0)
        assert [getattr(event.body, "text", None) for event in inherited] == [None, f"{SECRET} 0"]

    trio.run(story)


def test_who_reads_heads_while_a_purge_puts_them_looks_again(log):
    looks = []

    def look(_):
        looks.append(None)
        if len(looks) == 1:
            raise SessionPurged(7)
        return "there"

    assert trio.run(LogThreads(log).look_up, look) == "there"


# --- clients that leave ---------------------------------------------------------------------------------------------


def test_kv_goes_with_its_session_though_the_client_leaves_meanwhile(log, tmp_path):
    async def story() -> None:
        still = Still(log, tmp_path)
        session = await written(still)
        parked = tmp_path / park_name(IDENTITY, session)
        parked.write_bytes(b"KV")
        still.room.orders.worker_came()  # which never comes to what it is told
        with trio.CancelScope() as scope:
            still.bus.ends.append(lambda _: scope.cancel())
            await still.keeping.purge(session, 0, PurgeMode.REROOT)
        assert scope.cancelled_caught
        assert not parked.exists()
        assert still.room.orders._queue[-1] == Forget(0, (session,))

    trio.run(story)


def test_texts_go_with_the_next_write_though_the_client_leaves_where_the_disk_says_no(log, tmp_path):
    async def story() -> None:
        still = Still(log)
        session = await written(still)
        log._writer.execute("PRAGMA busy_timeout = 0")
        with closing(sqlite3.connect(tmp_path / "log.db", isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM records").fetchall()
            with trio.CancelScope() as scope:

                def leave(statement: str) -> None:
                    if "wal_checkpoint" in statement:
                        trio.from_thread.run_sync(scope.cancel)

                log._writer.set_trace_callback(leave)
                await still.keeping.purge(session, 0, PurgeMode.REROOT)
            log._writer.set_trace_callback(None)
        assert scope.cancelled_caught
        with pytest.raises(SessionPurged):
            still.book.live(session)
        await still.branching.create(None, GREEDY)
        assert not any(SECRET.encode() in file.read_bytes() for file in tmp_path.iterdir())

    trio.run(story)
