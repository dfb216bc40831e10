"""Kept requests beside those who purge them: what is gone was not damaged."""

from __future__ import annotations

import threading

import trio
import trio.testing

from superfluid.daemon.sessions.kept_requests import KeptRequests
from superfluid.protocol.codes import PurgeMode
from superfluid.protocol.records import Created
from superfluid.sessions import decide
from superfluid.sessions.state import SessionState
from superfluid.store.log import SessionLog
from tests.daemon.still import NOW, Still
from tests.support.daemon import DEADLINE, GREEDY

KEEP = 60.0
OVER = NOW + int(KEEP * 1000)


class Kept(Still):
    """Requests on a disk."""

    def __init__(self, log: SessionLog) -> None:
        super().__init__(log)
        self.requests = KeptRequests(self.book, self.room, self.keeping, KEEP)

    async def purge_due(self, now: int) -> None:
        self.now = now
        await self.requests._purge_due(now)

    async def one(self) -> int:
        """A request that is over at `NOW`."""
        state = SessionState(self.book.heads.next_request_id())
        events = self.book.pass_by(state, Created(None, GREEDY), decide.set_meta(state, 0, None, archived=True))
        async with self.requests.logged(state, events):
            pass
        return state.id

    def lives(self, session: int) -> bool:
        return self.book.heads.any(session) is not None


async def _purged_meanwhile(log):
    kept = Kept(log)
    gone, stays = await kept.one(), await kept.one()
    free = threading.Event()
    async with trio.open_nursery() as nursery:
        try:
            nursery.start_soon(kept.book.log.ask, lambda log: free.wait(DEADLINE))
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(kept.purge_due, OVER)
            await trio.testing.wait_all_tasks_blocked()  # until there is somebody to read
            await kept.keeping.purge(gone, 0, PurgeMode.REROOT)
        finally:
            free.set()
    assert not kept.lives(gone)
    assert not kept.lives(stays)


def test_one_that_is_purged_while_its_age_is_looked_up_is_not_called_damaged(log, caplog):
    trio.run(_purged_meanwhile, log)
    assert not caplog.records


async def _fenced(log):
    kept = Kept(log)
    session = await kept.one()
    log._writer.execute("UPDATE records SET erased = 1 WHERE session = ?", (session,))
    kept.book.fenced.add(session)  # as a purge leaves it that is durable, and not over
    await kept.purge_due(OVER)
    kept.book.fenced.remove(session)  # it has failed after all
    log._writer.execute("UPDATE records SET erased = 0 WHERE session = ?", (session,))
    await kept.purge_due(OVER)
    assert kept.lives(session)
    await kept.purge_due(OVER + 1000)
    assert not kept.lives(session)


def test_one_that_is_being_purged_is_looked_at_again(log, caplog):
    trio.run(_fenced, log)
    assert not caplog.records


async def _damaged(log):
    kept = Kept(log)
    session = await kept.one()
    log._writer.execute("UPDATE records SET body = x'00' WHERE session = ? AND event = 1", (session,))
    await kept.purge_due(OVER)
    assert kept.lives(session)


def test_one_that_is_damaged_is_still_told_of(log, caplog):
    trio.run(_damaged, log)
    assert [record.getMessage() for record in caplog.records] == ["1 requests are not purged yet: session_damaged"]
