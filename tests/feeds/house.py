"""A daemon's use cases in this process, over a real worker in another one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path

import trio

from superfluid.daemon import server
from superfluid.daemon.book import Book
from superfluid.daemon.bus import Bus
from superfluid.daemon.config import ServeConfig, ServerInfo
from superfluid.daemon.engine.room import EngineRoom
from superfluid.daemon.replies.conversing import Ask, Reply, Turn
from superfluid.daemon.use_cases import UseCases
from superfluid.model.gguf import inspect, locate
from superfluid.model.vocabulary import Vocabulary
from superfluid.protocol.codes import Qos, Role
from superfluid.protocol.feed_responses import Answer, FeedReport, FlashReady
from superfluid.protocol.records import FeedOpened, GenParams
from superfluid.sessions.ingest import Room, decide_batch
from superfluid.sessions.state import SessionState
from superfluid.store.log import SessionLog
from tests.support.daemon import DEADLINE, FAKE, GREEDY

NOW = 1_700_000_000_000
RESERVE = 128


@cache
def _vocabulary(path: Path) -> Vocabulary:
    """Loaded once for all tests: it takes half a second and never changes."""
    return Vocabulary(path)


class _Observer:
    def loading(self, permille: int) -> None: ...

    def ready(self, info: ServerInfo) -> None: ...

    def notice(self, text: str) -> None:
        print(text)


@dataclass(slots=True)
class House:
    """The parts of one daemon, and shortcuts for what tests do most."""

    cases: UseCases
    book: Book
    room: EngineRoom
    told: list[tuple[int, FlashReady]] = field(default_factory=list)

    async def open(self, *, window: int | None = None, pre_decode: bool = False, params: GenParams = GREEDY) -> int:
        session = await self.cases.branching.create(None, params)
        async with self.book.writing(session) as state:
            await self.book.commit_one(state, FeedOpened(window, pre_decode))
        return session

    async def state(self, session: int) -> SessionState:
        return await self.book.now(session)

    async def batch(self, session: int, *lines: str) -> None:
        """One batch of data, computed, committed and evaluated as the daemon does it in the background."""
        model = self.cases.conversing.model
        async with self.book.writing(session) as state:
            spans = list(zip(lines, await model.lines(lines), strict=True))
            head, _ = model.data_frame(state)
            ingested = decide_batch(state, spans, 0, head, Room(model.window, RESERVE))
            with self.book.passing(GREEDY, like=state) as scratch:
                self.book.pass_by(scratch, ingested)
                await self.compute(scratch, session)
            await self.book.commit_one(state, ingested)
        self.cases.evaluating.settled(session)

    async def settled(self, session: int) -> FeedReport:
        """The feed once nothing of it waits or is being ingested."""

        async def done() -> bool:
            report = await self.cases.feeds.report(session)
            return not report.pending and report.taken == report.total_pushed

        await self.until(done)
        return await self.cases.feeds.report(session)

    async def covered(self, session: int) -> FeedReport:
        """The feed once nothing of it waits and all of its input has KV, as clients wait for it."""

        async def done() -> bool:
            report = await self.cases.feeds.report(session)
            return not report.pending and report.kv_tokens + 1 >= report.tokens

        await self.until(done)
        return await self.cases.feeds.report(session)

    async def compute(self, scratch: SessionState, session: int) -> None:
        generation = self.cases.generating.admit(scratch, 0, Qos.BACKGROUND, kv_session=session)
        await generation.ended.wait()
        assert generation.refusal is None

    async def turn(self, session: int, *said: tuple[int, str], most: int = 8, stops: tuple[str, ...] = ()) -> Reply:
        """A chat turn that resends all of `said`, to its end."""
        turns = tuple(Turn(role, text) for role, text in said)
        async with self.cases.turning.reply(session, Ask(GREEDY, turns, max_tokens=most, stops=stops)) as reply:
            async for _ in reply.pieces():
                pass
        return reply

    async def until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        """Wait for background work; the deadline only gives up."""
        while not await condition():  # noqa: ASYNC110 - what it waits for has no event
            await trio.sleep(0.005)

    async def fresh(self, session: int) -> SessionState:
        """The session once all its flash queries have a current answer, and the ready position where one is kept."""

        async def all_fresh() -> bool:
            state = await self.state(session)
            ahead = not state.feed.pre_decode or self.cases.evaluating.ready(state) is not None
            return ahead and all(state.is_fresh(flash) for flash in state.feed.flashes.values())

        await self.until(all_fresh)
        await self.quiet()
        return await self.state(session)

    async def quiet(self) -> None:
        """Nothing is queued or runs."""

        async def nothing() -> bool:
            return not self.room.in_flight.all()

        await self.until(nothing)

    @property
    def computed(self) -> int:
        """Prompt tokens that the worker has computed."""
        return self.room.metrics.prefill_tokens


def user(text: str) -> tuple[int, str]:
    return int(Role.USER), text


def assistant(text: str) -> tuple[int, str]:
    return int(Role.ASSISTANT), text


def system(text: str) -> tuple[int, str]:
    return int(Role.SYSTEM), text


async def ask(house: House, session: int, question: object) -> tuple[str, Answer]:
    """A question to its end: what came piece by piece, and the answer."""
    async with house.cases.asking.ask(session, question) as answering:  # type: ignore[arg-type]
        pieces = [piece async for piece in answering.pieces()]
    return "".join(pieces), answering.answer


def run(directory: Path, story: Callable[[House], Awaitable[None]], **settings: object) -> None:
    """Live `story` in a house of its own."""
    trio.run(partial(_run, directory, story, settings))


async def _run(directory: Path, story: Callable[[House], Awaitable[None]], settings: dict[str, object]) -> None:
    with trio.fail_after(DEADLINE):
        async with open_house(directory, **settings) as house:
            await story(house)


@asynccontextmanager
async def open_house(directory: Path, *, vocabulary: Path | None = None, **settings: object) -> AsyncIterator[House]:
    """With `vocabulary`, text is tokenised and rendered as that model file says; only a fake worker bears it."""
    config = ServeConfig(
        **{
            "model": None,
            "socket": directory / "socket",
            "sessions": directory,
            "max_context": 1024,
            "max_batch": 4,
            "threads": 1,
            "kv_host_bytes": 64 << 20,
            "worker_argv": FAKE,
            **settings,
        }
    )
    async with AsyncExitStack() as stack:
        file = inspect(locate(config.model))
        words = _vocabulary(vocabulary or file.path)
        log = SessionLog(directory / "log.db")
        stack.callback(log.close)
        parts = server._Parts(config, _Observer(), file, words, b"0" * 16, log, directory / "log", ())
        bus = Bus()
        book = Book(log, bus, lambda: NOW)
        room = EngineRoom(book, bus, server._load(parts), config.worker_argv, _Observer().notice)
        ready = await room.start(lambda _: None)
        house = House(server._use_cases(parts, ready, book, bus, room), book, room)
        publish = house.cases.evaluating.tell

        def tell(session: int, news: FlashReady) -> None:
            house.told.append((session, news))
            publish(session, news)

        house.cases.evaluating.tell = tell
        nursery = await stack.enter_async_context(trio.open_nursery())
        nursery.start_soon(room.run)
        nursery.start_soon(house.cases.evaluating.run)
        nursery.start_soon(house.cases.ingesting.run)
        yield house
        nursery.cancel_scope.cancel()
