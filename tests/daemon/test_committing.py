"""Commits of what lanes drew: what goes wrong with one session goes wrong with its own generation alone."""

from __future__ import annotations

import trio
import trio.testing

from superfluid.daemon.book import Book
from superfluid.daemon.bus import Bus
from superfluid.daemon.engine.committing import Committer
from superfluid.daemon.engine.generation import Generation
from superfluid.daemon.engine.in_flight import InFlight
from superfluid.daemon.metrics import Metrics
from superfluid.model.channels import Channels
from superfluid.protocol.codes import Finish
from superfluid.protocol.records import Created, Event, Generated, GenParams
from superfluid.protocol.refusals import ShuttingDown
from superfluid.protocol.ticks import pack
from superfluid.scheduler.job import Job
from superfluid.sessions.state import SessionState
from superfluid.store.log import SessionLog

BROKEN, WHOLE = 1, 2


class Log(SessionLog):
    """A log with a bug that one session meets when it is folded."""

    def snapshot(self, session, most):
        if session == BROKEN:
            raise RuntimeError("a bug")
        return super().snapshot(session, most)


def generation(in_flight, session):
    job = Job(in_flight.next_lane(), session, 2, pack([1]), GenParams(), offset=0, limit=1, arrived=0.0)
    made = Generation(job, Channels().splitter(lambda token: b"x"), Metrics(), ends=False)
    in_flight.add(made)
    made.draw([7])
    return made


async def fill(path):
    log = SessionLog(path)
    book = Book(log, Bus(), lambda: 1)
    for _ in (BROKEN, WHOLE):
        state = SessionState(book.heads.next_id())
        event = Event(0, 1, 1, Created(None, GenParams()))
        state.apply(event)
        await book.commit_new(state, (event,))
    log.close()


def test_a_session_that_does_not_fold_costs_its_own_generation_alone(tmp_path):
    async def main():
        await fill(tmp_path / "log.db")
        log = Log(tmp_path / "log.db")
        book, in_flight, cancelled, lost = Book(log, Bus(), lambda: 1), InFlight(), [], []
        committer = Committer(
            book, in_flight, cancelled.append, lambda generations, refusal: lost.extend(generations), lease_ms=0
        )
        broken, whole = generation(in_flight, BROKEN), generation(in_flight, WHOLE)
        send, batches = trio.open_memory_channel(1)
        async with send:
            await send.send(tuple(committer.piece(one.job.lane, Finish.LENGTH) for one in (broken, whole)))
        with trio.fail_after(30):
            await committer.run(batches)
        assert broken.refusal is not None
        assert "internal error" in str(broken.refusal)
        assert lost == cancelled == [broken]
        assert whole.summary is not None
        assert whole.summary.finish is Finish.LENGTH
        assert not in_flight.all()
        (*_, event) = await book.read(WHOLE, 0)
        assert isinstance(event.body, Generated)
        assert event.body.span == (7,)
        log.close()

    trio.run(main)


def test_a_generation_that_was_dropped_during_its_commit_has_ended_once(tmp_path):
    """As by a drain whose time is over while the disk writes."""

    async def main():
        await fill(tmp_path / "log.db")
        log = SessionLog(tmp_path / "log.db")
        book, in_flight = Book(log, Bus(), lambda: 1), InFlight()
        committer = Committer(book, in_flight, lambda generation: None, lambda generations, refusal: None, lease_ms=0)
        dropped = generation(in_flight, WHOLE)
        send, batches = trio.open_memory_channel(1)
        async with trio.open_nursery() as nursery, book.writing(WHOLE):
            nursery.start_soon(committer.run, batches)
            async with send:
                await send.send((committer.piece(dropped.job.lane, Finish.LENGTH),))
            await trio.testing.wait_all_tasks_blocked()
            in_flight.drop(dropped, ShuttingDown())
        assert isinstance(dropped.refusal, ShuttingDown)
        assert dropped.summary is None
        (*_, event) = await book.read(WHOLE, 0)
        assert isinstance(event.body, Generated)
        log.close()

    trio.run(main)
