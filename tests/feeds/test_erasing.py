"""What left the streams of all sessions that have it is erased, and nothing else, in any history (decision 22).

Every entry says a word and a span of tokens that nothing else says; they are looked for in all bytes of the log.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

from superfluid.daemon.book import Book
from superfluid.daemon.bus import Bus
from superfluid.daemon.draft import Draft
from superfluid.daemon.engine.generation import Generation
from superfluid.daemon.engine.room import EngineRoom
from superfluid.daemon.feeds.erasing import Erasing
from superfluid.daemon.feeds.progress import FACT
from superfluid.daemon.log_threads import LogThreads
from superfluid.daemon.parked_files import ParkedFiles
from superfluid.daemon.sessions.branching import Branching
from superfluid.daemon.sessions.generating import Generating
from superfluid.daemon.sessions.keeping import Keeping
from superfluid.model.channels import Channels
from superfluid.protocol import postcard, records
from superfluid.protocol.codes import PurgeMode
from superfluid.protocol.records import Drop, Entry, Erased, Event, Ingested, Span, batch_of
from superfluid.protocol.refusals import DataErased
from superfluid.protocol.ticks import Load, pack
from superfluid.scheduler.job import Job
from superfluid.sessions import snapshot
from superfluid.sessions.state import SessionState, Tail
from superfluid.store.check import damaged_records
from superfluid.store.log import Change, SessionLog
from tests.durability.house import files_below
from tests.support.daemon import DEADLINE, FAKE, GREEDY

SEEDS = 6
KEEP = 60.0
SIGNAL = 0x0BADC0DE
MARK = 1 << 27
HEAD = (7, 7)
ACTS = ["batch"] * 6 + ["say", "rewind", "fork", "fork", "rebase", "snapshot", "purge", "reply"]


class Model:
    """What a rebase renders with."""

    dialect = None

    def data_frame(self, before: SessionState) -> tuple[Span, Span]:
        return HEAD, (8,)

    def opener(self, before: SessionState) -> Span:
        return (9,)

    def tokens_now(self, text: str) -> Span:
        return (5, 6)


class World:
    """Sessions on a disk, without a worker; `timelines` are their events as they were written."""

    def __init__(self, directory: Path, chance: random.Random) -> None:
        self.directory = directory
        self.chance = chance
        self.now = 1_700_000_000_000
        self.said = 0
        self.timelines: dict[int, list[Event]] = {}
        self.open()

    def open(self) -> None:
        self.log = SessionLog(self.directory / "log.db")
        bus = Bus()
        self.book = Book(self.log, bus, lambda: self.now)
        self.room = room = EngineRoom(self.book, bus, Load("", 64, 1, 1, 0, 0, 0), FAKE, print)
        nowhere = ParkedFiles((), b"0" * 16)
        self.branching = Branching(self.book, Model())  # type: ignore[arg-type]
        generating = Generating(self.book, room, Model(), leases=False)  # type: ignore[arg-type]
        self.keeping = Keeping(self.book, bus, room, generating, nowhere)
        self.erasing = Erasing(self.book, bus, room, nowhere, nowhere, KEEP)

    def restart(self) -> None:
        self.log.close()
        self.open()

    @property
    def living(self) -> list[int]:
        return [head.id for head in self.book.heads.all_live()]

    # --- what happens to sessions ---------------------------------------------------------------------------------

    async def act(self, *, wild: bool) -> None:
        session = self.chance.choice(self.living or [await self.create()])
        state = await self.book.now(session)
        match self.chance.choice(ACTS):
            case "batch":
                await self.batch(session, state)
            case "say":
                await self.write(session, records.Message(1, "said", (5, self.chance.randrange(6))))
            case "rewind":
                back = records.Rewound(self.chance.randint(0, len(state.said)), state.feed.version + 1)
                put = () if wild and self.chance.random() < 0.5 else (records.Restored(HEAD),)
                await self.write(session, back, *put)
            case "fork" if len(self.living) < 6:
                await self.fork(session, self.chance.randint(1, state.events))
            case "rebase" if wild and state.events > 2 and len(self.living) < 6:
                start = self.chance.randint(1, state.events - 1)
                await self.rebase(session, start, self.chance.randint(start + 1, state.events))
            case "snapshot":
                change = Change(self.book.live(session), (), snapshot.dump(state))
                await self.book.log.rewrite(lambda log: log.commit((change,)))
            case "reply" if not self.room.in_flight.busy(session):
                self.reply(session)
            case "purge" if len(self.living) > 3:
                mode = self.chance.choice([PurgeMode.REROOT, PurgeMode.REROOT, PurgeMode.CASCADE])
                for purged in await self.keeping.purge(session, 0, mode):
                    del self.timelines[purged]
        await self.catch_up()
        self.now += self.chance.choice([0, 0, 10_000, 30_000])

    async def create(self) -> int:
        session = await self.branching.create(None, GREEDY)
        await self.catch_up()
        return session

    async def write(self, session: int, *bodies: records.EventBody) -> None:
        async with self.book.writing(session) as state:
            await self.book.commit([Draft(state, bodies)])

    async def batch(self, session: int, state: SessionState) -> None:
        held, evicted, seen = len(state.feed.ordinals), self.chance.randint(0, 4), self.chance.randint(0, 3)
        unseen = self.chance.randint(0, 2) if evicted >= held and seen else 0
        entries = tuple(self.entry(place >= unseen) for place in range(unseen + seen))
        head = HEAD if state.tail is not Tail.DATA and seen else ()
        await self.write(session, Ingested(state.feed.version + 1, head, entries, min(evicted, held) + unseen, 0))

    def entry(self, seen: bool) -> Entry:
        self.said += 1
        return Entry(word(self.said), span(self.said) if seen else ())

    async def fork(self, session: int, at: int) -> None:
        try:
            await self.branching.fork(session, at, None)
        except DataErased:
            state = folded(self.timelines[session][:at])
            gone = held(state) - await self.readable(session)
            assert gone or not state.feed.is_whole(state.tokens), "nothing that it needs is gone"

    async def rebase(self, session: int, start: int, stop: int) -> None:
        try:
            await self.branching.rebase(session, (Drop(start, stop),), None)
        except DataErased:
            pass

    async def catch_up(self) -> None:
        """Note what was written."""
        for session in self.living:
            head = self.book.live(session)
            if session not in self.timelines:
                self.timelines[session] = self.timelines[head.parent][: head.own_from] if head.own_from else []
            known = self.timelines[session]
            known += await self.book.read(session, len(known))

    def reply(self, session: int) -> Generation:
        """A reply of a session, under way until it is ended."""
        job = Job(self.room.in_flight.next_lane(), session, 2, pack([1]), GREEDY, offset=0, limit=1, arrived=0.0)
        generation = Generation(job, Channels().splitter(lambda token: b""), self.room.metrics, ends=False)
        self.room.submit(generation)
        return generation

    def end(self, *replies: Generation) -> None:
        for reply in replies:
            self.room.cancel(reply)

    # --- what is true ---------------------------------------------------------------------------------------------

    async def readable(self, *sessions: int) -> set[int]:
        """The entries that reading the logs gives, of all sessions where none is named."""
        events = [event for session in sessions or self.living for event in await self.book.read(session, 0)]
        return {int(entry.text[2:], 16) for event in events for entry in kept(event)}

    def in_streams(self) -> set[int]:
        return {one for timeline in self.timelines.values() for one in held(folded(timeline))}

    def needed(self) -> set[int]:
        """The entries that were in some stream, or came, within the time for which they are kept."""
        found: set[int] = set()
        for timeline in self.timelines.values():
            state = SessionState(0)
            young = False
            for event in timeline:
                young = young or (batch(event) is not None and event.ts_unix_ms > self.now - KEEP * 1000)
                if young:
                    found |= held(state) | {number(entry) for entry in kept(event)}
                state.apply(event)
        return found | self.in_streams()

    async def check(self, *, exactly: bool) -> None:
        there, read = self.on_disk(), await self.readable()
        assert there == read, "what cannot be read is in no file"
        assert self.in_streams() <= read, "erased what is still there"
        if exactly:
            assert read == self.needed()
        for session, timeline in self.timelines.items():
            now = await self.book.read(session, 0)
            assert [event.event_id for event in now] == list(range(len(timeline)))
            for was, is_ in zip(timeline, now, strict=True):
                same_but_for_what_is_gone(was, is_)
        assert not damaged_records(self.directory / "log.db")

    def noted(self) -> set[int]:
        """The sessions of which the log says how far their data is done."""
        return {session for session in range(1, 10) if self.log.fact(f"{FACT}{session}") is not None}

    def on_disk(self) -> set[int]:
        data = b"".join(path.read_bytes() for path in files_below(self.directory))
        return {one for one in range(1, self.said + 1) if any(trace in data for trace in traces(one))}


def word(one: int) -> str:
    return f"Zq{one:08x}"


def span(one: int) -> Span:
    return (SIGNAL, MARK + one)


def traces(one: int) -> tuple[bytes, ...]:
    return word(one).encode(), postcard.encode(Span, span(one))[1:], pack(span(one))


def number(entry: Entry) -> int:
    return int(entry.text[2:], 16)


def batch(event: Event) -> Ingested | None:
    return batch_of(event.body) if isinstance(event.body, Ingested | Erased) else None


def kept(event: Event) -> tuple[Entry, ...]:
    return event.body.entries if isinstance(event.body, Ingested | Erased) else ()


def held(state: SessionState) -> set[int]:
    """The entries in a stream, or set aside."""
    spans = [state.tokens[start : start + length] for start, length in state.feed.entries] + state.feed.detached
    return {tokens[1] - MARK for tokens in spans if tokens[1] != records.ERASED}


def folded(events: list[Event]) -> SessionState:
    state = SessionState(0)
    for event in events:
        state.apply(event)
    return state


def same_but_for_what_is_gone(was: Event, now: Event) -> None:
    if not isinstance(now.body, Erased):
        assert now == was or isinstance(now.body, records.Rerooted)
        return
    before, after = batch(was), batch(now)
    assert before is not None
    assert after is not None
    gone = len(now.body.erased)
    assert (now.event_id, now.epoch, now.ts_unix_ms) == (was.event_id, was.epoch, was.ts_unix_ms)
    assert [len(entry.span) for entry in after.entries] == [len(entry.span) for entry in before.entries]
    assert after.entries[gone:] == before.entries[gone:]
    assert (after.version, after.head, after.evicted) == (before.version, before.head, before.evicted)


async def live(directory: Path, seed: int, *, wild: bool) -> None:
    world = World(directory, random.Random(seed))
    try:
        await world.create()
        for _ in range(6):
            for _ in range(world.chance.randint(1, 12)):
                await world.act(wild=wild)
            before = {session: await world.book.now(session) for session in world.living}
            await world.erasing.look()
            if world.chance.random() < 0.3:
                await world.erasing.look()
            replies = world.room.in_flight.all()
            await world.check(exactly=not wild and not replies)
            if replies:
                world.end(*replies)
                for _ in range(2):  # what had left when they were under way, and what has left since
                    await world.erasing.look()
                await world.check(exactly=not wild)
            assert {session: await world.book.now(session) for session in world.living} == before
            world.restart()
            assert {session: await world.book.now(session) for session in world.living} == before, "folds to the same"
    finally:
        world.log.close()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_any_history(tmp_path, seed):
    trio.run(_bounded, tmp_path, seed, False)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_history_of_edits_that_leave_data_in_another_order(tmp_path, seed):
    trio.run(_bounded, tmp_path, seed, True)


def test_what_waits_to_be_put_back_stays(tmp_path):
    """A rebase may leave a rewind without its end: what came later leaves the stream first then."""

    async def story() -> None:
        world = World(tmp_path, random.Random(1))
        session = await world.create()
        one, two, three, four = (world.entry(True) for _ in range(4))
        await world.write(session, Ingested(1, HEAD, (one, two), 0, 0), records.Rewound(0, 2))
        await world.write(session, Ingested(3, HEAD, (three,), 0, 0), Ingested(4, (), (four,), 1, 0))
        await world.catch_up()
        world.now += 100_000
        await world.erasing.look()
        assert held(await world.book.now(session)) == {1, 2, 4}
        await world.check(exactly=False)
        world.restart()
        await world.write(session, records.Restored(()))
        assert held(await world.book.now(session)) == {1, 2, 4}
        await world.write(session, Ingested(5, (), (), 3, 0))
        world.now += 100_000
        await world.erasing.look()
        assert world.on_disk() == set()
        world.log.close()

    trio.run(story)


class Interrupted(Branching):
    """Makes children so slowly that data is erased meanwhile, once."""

    look: Erasing | None = None

    async def _fork(self, parent, body):
        child = await super()._fork(parent, body)
        if self.look is not None:
            look, self.look = self.look, None
            await look.look()
        return child


def test_a_fork_that_is_made_while_data_is_erased(tmp_path):
    async def story() -> None:
        world = World(tmp_path, random.Random(1))
        session = await world.create()
        entries = tuple(world.entry(True) for _ in range(4))
        await world.write(session, Ingested(1, HEAD, entries[:2], 0, 0))
        await world.write(session, Ingested(2, (), entries[2:], 2, 0))
        world.now += 100_000
        world.branching = Interrupted(world.book, Model())  # type: ignore[arg-type]
        for at in (2, 3):
            world.branching.look = world.erasing
            if at == 2:  # it read what was there, and is committed after that was erased
                with pytest.raises(DataErased):
                    await world.branching.fork(session, at, None)
            else:
                child = await world.branching.fork(session, at, None)
        stream = (await world.book.now(child)).tokens
        world.restart()
        assert (await world.book.now(child)).tokens == stream
        assert world.on_disk() == {3, 4}
        world.log.close()

    trio.run(story)


def test_a_reply_keeps_the_data_of_those_only_that_share_it(tmp_path):
    async def story() -> None:
        world = World(tmp_path, random.Random(1))
        parent, other = await world.create(), await world.create()
        for session in (parent, other):
            await world.write(session, Ingested(1, HEAD, (world.entry(True), world.entry(True)), 0, 0))
            await world.write(session, Ingested(2, (), (world.entry(True),), 2, 0))
        child = await world.branching.fork(parent, (await world.book.now(parent)).events, None)
        world.now += 100_000
        reply = world.reply(child)
        await world.erasing.look()
        assert world.on_disk() == {1, 2, 3, 6}, "what the fork may have KV of stays, in its parent too"
        world.reply(child)  # which began when they had left
        await world.erasing.look()
        assert world.on_disk() == {1, 2, 3, 6}
        world.end(reply)
        await world.erasing.look()
        assert world.on_disk() == {3, 6}
        world.log.close()

    trio.run(within, DEADLINE, story)


class Overheard(LogThreads):
    """Lets somebody look when a purge is in the log, and the heads do not say so yet."""

    def __init__(self, log: SessionLog, look: Callable[[], Awaitable[None]]) -> None:
        super().__init__(log)
        self.look = look

    async def purge(self, purged, rerooted):
        erased = await super().purge(purged, rerooted)
        await self.look()
        return erased


def test_data_whose_records_move_while_a_parent_is_purged(tmp_path, caplog):
    async def story() -> None:
        world = World(tmp_path, random.Random(1))
        parent = await world.create()
        await world.write(parent, Ingested(1, HEAD, (world.entry(True), world.entry(True)), 0, 0))
        await world.write(parent, Ingested(2, (), (world.entry(True),), 2, 0))
        child = await world.branching.fork(parent, (await world.book.now(parent)).events, None)
        world.now += 100_000
        world.book.log = Overheard(world.log, world.erasing.look)
        await world.keeping.purge(parent, 0, PurgeMode.REROOT)
        await world.erasing.look()
        assert world.on_disk() == {3}
        assert await world.readable(child) == {3}
        world.log.close()

    trio.run(within, DEADLINE, story)
    assert not caplog.messages, "nothing is wrong"


def test_nothing_is_noted_of_what_is_purged(tmp_path):
    async def story() -> None:
        world = World(tmp_path, random.Random(1))
        sessions = [await world.create() for _ in range(3)]
        for session in sessions:
            await world.write(session, Ingested(1, HEAD, (world.entry(True),), 0, 0), Ingested(2, (), (), 1, 0))
        await world.erasing.look()
        assert world.noted() == set(sessions)
        await world.keeping.purge(sessions[0], 0, PurgeMode.REROOT)
        await world.erasing.look()
        assert world.noted() == set(sessions[1:])
        await world.keeping.purge(sessions[1], 0, PurgeMode.REROOT)
        world.restart()
        await world.erasing.look()
        assert world.noted() == {sessions[2]}
        world.log.close()

    trio.run(within, DEADLINE, story)


async def within(seconds: float, story: Callable[[], Awaitable[None]]) -> None:
    with trio.fail_after(seconds):
        await story()


async def _bounded(directory: Path, seed: int, wild: bool) -> None:
    with trio.fail_after(DEADLINE):
        await live(directory, seed, wild=wild)
