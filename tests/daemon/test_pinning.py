"""What the engine room is told to hold, as sessions are pinned, used and purged (spec: wire-facts, 8.14)."""

from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager

import pytest
import trio
import trio.testing

from superfluid.daemon.book import Book
from superfluid.daemon.bus import Bus
from superfluid.daemon.engine.generation import Generation
from superfluid.daemon.engine.mirror import Mirror
from superfluid.daemon.engine.orders import Orders
from superfluid.daemon.engine.room import EngineRoom
from superfluid.daemon.sessions.pinning import Pinning
from superfluid.model.channels import Channels
from superfluid.protocol.records import Created, Event, GenParams
from superfluid.protocol.refusals import UnknownSession
from superfluid.protocol.ticks import Load, pack
from superfluid.scheduler.job import Job
from superfluid.sessions.state import SessionState
from superfluid.store.log import SessionLog

LOAD = Load("m", context=512, lanes=1, spare=1, threads=1, gpu_layers=0, host_bytes=0)


class Told(Orders):
    """Orders to nobody; `held` is all that was to be held."""

    def __init__(self):
        super().__init__(LOAD, Mirror(), lambda: None)
        self.held: list[tuple[int, ...]] = []

    def hold(self, sessions):
        self.held.append(tuple(sessions))


class Room(EngineRoom):
    """An engine room without a worker."""

    def __init__(self, book, bus):
        super().__init__(book, bus, LOAD, (), print)
        self.orders = Told()

    def use(self, session):
        """As a generation on it does."""
        job = Job(
            lane=self.in_flight.next_lane(),
            session=session,
            qos=2,
            tokens=pack([1]),
            params=GenParams(),
            offset=0,
            limit=1,
            arrived=0.0,
        )
        splitter = Channels().splitter(lambda token: b"")
        self.submit(Generation(job, splitter, self.metrics, ends=False))


class House:
    """Sessions 1 to 3 in a log, and a clock."""

    def __init__(self, path) -> None:
        self.path = path
        self.now = 1_000_000

    @contextmanager
    def open(self):
        log, bus = SessionLog(self.path), Bus()
        book = Book(log, bus, lambda: self.now)
        room = Room(book, bus)
        try:
            yield book, room, Pinning(book, room)
        finally:
            log.close()

    async def fill(self, book):
        for _ in range(3):
            state = SessionState(book.heads.next_id())
            event = Event(0, 1, self.now, Created(None, GenParams()))
            state.apply(event)
            await book.commit_new(state, (event,))


@asynccontextmanager
async def running(pinning):
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pinning.run)
        await trio.testing.wait_all_tasks_blocked()
        yield
        nursery.cancel_scope.cancel()


@pytest.fixture
def house(tmp_path):
    return House(tmp_path / "log.db")


def test_the_last_touched_come_first(house):
    async def talk():
        with house.open() as (book, room, pinning):
            await house.fill(book)
            async with running(pinning):
                for session in (1, 2, 3):
                    await pinning.pin(session, 60_000)
                    await trio.testing.wait_all_tasks_blocked()
                assert room.orders.held[-1] == (3, 2, 1)
                told = len(room.orders.held)
                room.use(3)
                await trio.testing.wait_all_tasks_blocked()
                assert len(room.orders.held) == told  # it was the first already
                room.use(1)
                await trio.testing.wait_all_tasks_blocked()
                assert room.orders.held[-1] == (1, 3, 2)
                await pinning.pin(1, 0)
                await trio.testing.wait_all_tasks_blocked()
                assert room.orders.held[-1] == (3, 2)
                room.use(1)
                await trio.testing.wait_all_tasks_blocked()
                assert room.orders.held[-1] == (3, 2)
                with pytest.raises(UnknownSession):
                    await pinning.pin(99, 1)

    trio.run(talk)


def test_pins_run_out_and_the_others_are_armed_again(house):
    async def talk():
        with house.open() as (book, room, pinning):
            await house.fill(book)
            async with running(pinning):
                await pinning.pin(1, 5_000)
                assert await pinning.pin(2, 60_000) == house.now + 60_000
                house.now += 6_000
                await pinning.pin(3, 60_000)
                await trio.testing.wait_all_tasks_blocked()
                assert room.orders.held[-1] == (3, 2)
                assert room.metrics.pins_expired == 1
        with house.open() as (_, room, pinning):
            async with running(pinning):
                assert sorted(room.orders.held[-1]) == [2, 3]
        house.now += 60_000
        with house.open() as (_, room, pinning):
            async with running(pinning):
                assert room.orders.held[-1] == ()

    trio.run(talk)
