"""A daemon's use cases inside the test process: no sockets, and the engine's worker loop on the fake in a thread.

What the daemon starts as its worker hands its end of the socket pair to that thread, and leaves when the thread does:
a start then costs milliseconds, and the frames between daemon and worker are the real ones.
"""

from __future__ import annotations

import functools
import gc
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import trio

from superfluid.daemon import server
from superfluid.daemon.activity import Activity
from superfluid.daemon.book import Book
from superfluid.daemon.bus import Bus
from superfluid.daemon.config import ServeConfig, ServerInfo
from superfluid.daemon.engine.room import EngineRoom
from superfluid.engine.channel import Channel, Closed
from superfluid.engine.fake import open_fake
from superfluid.engine.worker import serve
from superfluid.model.gguf import inspect, locate
from superfluid.model.vocabulary import Vocabulary
from superfluid.protocol import jsonform
from superfluid.protocol.requests import Request
from superfluid.protocol.responses import Response
from superfluid.store.log import SessionLog
from superfluid.transports.conversation import Conversation
from tests.support.daemon import DEADLINE

Json = Any


class Silent:
    """Watches nothing."""

    def loading(self, permille: int) -> None: ...

    def ready(self, info: ServerInfo) -> None: ...

    def notice(self, text: str) -> None: ...


@functools.cache
def opened(model: str) -> tuple[Any, Vocabulary]:
    """A model file and its vocabulary."""
    file = inspect(locate(model))
    return file, Vocabulary(file.path)


_HAND_OVER = """
import os, socket, sys
fd = int(sys.argv[sys.argv.index("--fd") + 1])
with socket.socket(socket.AF_UNIX) as house:
    house.connect(sys.argv[1])
    socket.send_fds(house, [b"-"], [fd])
    os.close(fd)
    house.recv(1)
"""


class Workers:
    """Runs the worker loop in threads; `argv` is what a daemon is to start. `options` as for `--fake`."""

    def __init__(self, directory: Path, options: str) -> None:
        self._options = options
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(directory / "w"))
        self._listener.listen()
        self.argv = (sys.executable, "-I", "-S", "-c", _HAND_OVER, str(directory / "w"))
        self.faults: list[BaseException] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Take in no more. Raises what a worker loop raised: a broken promise of the engine's."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        gc.unfreeze()
        if self.faults:
            raise self.faults[0]

    def _accept(self) -> None:
        while True:
            try:
                process, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._work, args=(process,), daemon=True).start()

    def _work(self, process: socket.socket) -> None:
        with process:
            _, descriptors, _, _ = socket.recv_fds(process, 1, 1)
            with socket.socket(fileno=descriptors[0]) as pair:
                try:
                    serve(Channel(pair), lambda load, _, told: open_fake(load, self._options, told), check=True)
                except Closed:
                    pass
                except BaseException as fault:
                    self.faults.append(fault)


class Inside:
    """One daemon on `directory`, whose event loop runs in a thread of its own. `subscribed` are the frames of the
    subscriptions of this start."""

    def __init__(self, directory: Path, model: str, options: str, window: int) -> None:
        self._workers = Workers(directory, options)
        self._config = ServeConfig(
            model=model,
            socket=directory / "s",
            sessions=directory,
            max_context=window,
            max_batch=2,
            threads=1,
            kv_host_bytes=1 << 20,
            worker_argv=self._workers.argv,
        )
        self.start()

    def start(self) -> None:
        self.subscribed: list[Json] = []
        self._ready = threading.Event()
        self._fault: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._ready.wait(DEADLINE)
        self._raise()

    def stop(self) -> None:
        """Let go of everything at once, as a kill would; what was told is durable."""
        self._call(self._leave)
        self._thread.join(DEADLINE)
        assert not self._thread.is_alive()
        self._raise()

    def close(self) -> None:
        self.stop()
        self._workers.close()

    def ask(self, request: Json) -> list[Json]:
        """Everything that answers a request."""
        return self._call(self._ask, request)

    def cut(self, request: Json) -> tuple[list[Json], Json]:
        """A generation that somebody else cancels once something was drawn; what both were told."""
        return self._call(self._cut, request)

    def subscription(self, sub: int, enough: Callable[[list[Json]], bool]) -> list[Json]:
        """The frames of a subscription, once there are enough."""
        return self._call(self._subscription, sub, enough)

    def _raise(self) -> None:
        if self._fault is not None:
            raise self._fault

    def _call(self, work: Callable[..., Any], *arguments: Any) -> Any:
        async def within() -> Any:
            with trio.fail_after(DEADLINE):
                return await work(*arguments)

        return trio.from_thread.run(within, trio_token=self._token)

    # --- in the thread --------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            trio.run(self._main)
        except BaseException as fault:
            self._fault = fault
        finally:
            self._ready.set()

    async def _main(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._news = trio.Event()
        assert self._config.model is not None
        file, vocabulary = opened(self._config.model)
        log = SessionLog(self._config.sessions / "log.db")
        try:
            parts = server._Parts(self._config, Silent(), file, vocabulary, b"", log, Path("log"), ())
            bus = Bus()
            clock = iter(range(1_700_000_000_000, 1 << 60))
            book = Book(log, bus, lambda: next(clock))
            room = EngineRoom(book, bus, server._load(parts), self._config.worker_argv, lambda _: None)
            ready = await room.start(lambda _: None)
            self._cases = server._use_cases(parts, ready, book, bus, room)
            self._conversation = self._connect(self._take)
            self._frames: list[Json] = []
            async with trio.open_nursery() as self._nursery:
                self._nursery.start_soon(room.run)
                self._nursery.start_soon(self._cases.pinning.run)
                self._ready.set()
        finally:
            log.close()

    async def _leave(self) -> None:
        self._nursery.cancel_scope.cancel()

    def _connect(self, take: Callable[[Json], None]) -> Conversation:
        async def send(response: Response) -> None:
            take(jsonform.to_json(Response, response))

        return Conversation(self._cases, Activity(), send, trio.sleep_forever)

    def _take(self, frame: Json) -> None:
        name = frame if isinstance(frame, str) else next(iter(frame))
        if name in ("SubEvent", "SubProvisional", "SubEnded"):
            self.subscribed.append(frame)
        else:
            self._frames.append(frame)
        self._news.set()
        self._news = trio.Event()

    async def _ask(self, request: Json) -> list[Json]:
        self._frames = []
        await self._conversation.handle(jsonform.from_json(Request, request), self._nursery)
        return self._frames

    async def _cut(self, request: Json) -> tuple[list[Json], Json]:
        self._frames = []
        others: list[Json] = []
        other = self._connect(others.append)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._conversation.handle, jsonform.from_json(Request, request), self._nursery)
            while not self._frames:
                await self._news.wait()
            session = request["Generate"]["session"]
            await other.handle(jsonform.from_json(Request, {"Cancel": {"session": session}}), self._nursery)
        return self._frames, others[0]

    async def _subscription(self, sub: int, enough: Callable[[list[Json]], bool]) -> list[Json]:
        def mine() -> list[Json]:
            return [frame for frame in self.subscribed if next(iter(frame.values()))["sub"] == sub]

        while not enough(mine()):
            await self._news.wait()
        return mine()
