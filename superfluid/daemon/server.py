"""The composition root: one daemon, from its settings to its end."""

from __future__ import annotations

import hashlib
import logging
import math
import os
import re
import resource
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import trio

from superfluid import __version__
from superfluid.daemon import sizing
from superfluid.daemon.activity import Activity
from superfluid.daemon.book import Book
from superfluid.daemon.bus import Bus
from superfluid.daemon.config import Observer, ServeConfig, ServerInfo, StartError, web_token
from superfluid.daemon.drain import drain
from superfluid.daemon.engine.pressure import Pressure, memory_in_use
from superfluid.daemon.engine.room import EngineRoom
from superfluid.daemon.engine.worker import LoadRefused, WorkerDied
from superfluid.daemon.feeds.asking import Asking
from superfluid.daemon.feeds.erasing import Erasing
from superfluid.daemon.feeds.evaluating import Evaluating
from superfluid.daemon.feeds.events import FeedEvents
from superfluid.daemon.feeds.feeds import Feeds
from superfluid.daemon.feeds.flashing import Flashing
from superfluid.daemon.feeds.idling import Idling
from superfluid.daemon.feeds.ingesting import Ingesting
from superfluid.daemon.feeds.turning import Turning
from superfluid.daemon.logging_setup import BadFilter, open_log, parse_filter
from superfluid.daemon.parked_files import ParkedFiles
from superfluid.daemon.replies.completing import Completing, Limits
from superfluid.daemon.replies.conversing import Conversing
from superfluid.daemon.served import ServedModel
from superfluid.daemon.sessions.appending import Appending
from superfluid.daemon.sessions.branching import Branching
from superfluid.daemon.sessions.generating import Generating
from superfluid.daemon.sessions.keeping import Keeping
from superfluid.daemon.sessions.kept_requests import KeptRequests
from superfluid.daemon.sessions.pinning import Pinning
from superfluid.daemon.sessions.reading import Reading
from superfluid.daemon.sessions.tooling import Tooling
from superfluid.daemon.stopping import StopSignal
from superfluid.daemon.telling import Telling
from superfluid.daemon.transport import Transport
from superfluid.daemon.use_cases import UseCases
from superfluid.daemon.watching import Watching
from superfluid.model.dialect import dialect_of
from superfluid.model.gguf import ModelError, ModelFile, inspect, locate
from superfluid.model.vocabulary import Vocabulary
from superfluid.protocol.ticks import ALL_LAYERS, KV_TYPES, Load, Ready
from superfluid.sessions.ingest import Room
from superfluid.store.errors import StoreError
from superfluid.store.lock import DirectoryLock
from superfluid.store.log import SessionLog

_LOG = logging.getLogger("superfluid.server")

IDENTITY_BYTES = 8 << 20
"""Front of a model file that tells it from others: its header, with vocabulary and tensor types, lies there."""

MOST_OPEN = 1 << 16
"""Files that the daemon wants to have open at most, connections included."""


def run(config: ServeConfig, observer: Observer, transports: Sequence[Transport]) -> None:
    """Serve over `transports` until SIGTERM or SIGINT, then drain. Raises StartError where it cannot start."""
    _open_many()
    with ExitStack() as stack:
        levels = _checked_levels(config)
        file = _find_model(config.model)
        _make_directory(config.sessions, "sessions")
        if config.park:
            _make_directory(config.park_dir or config.sessions / "park", "park")
        try:
            lock = DirectoryLock.acquire(config.sessions, config.socket)
            stack.callback(lock.release)
            log_file = config.log_file or config.sessions / "logs" / "serve.log"
            handler = open_log(log_file, levels)
            stack.callback(logging.getLogger("superfluid").removeHandler, handler)
            stack.callback(handler.close)
            vocabulary = stack.enter_context(Vocabulary(file.path))
            identity = _identity(file.path)
            log = SessionLog(config.sessions / f"{_slug(file)}-{identity.hex()[:12]}.db")
            stack.callback(log.close)
        except (StoreError, ModelError) as fault:
            raise StartError(str(fault)) from fault
        except OSError as fault:
            raise StartError(f"{fault.filename or config.sessions}: {fault.strerror}") from fault
        for transport in transports:
            stack.callback(transport.close)
            transport.bind()
        parts = _Parts(config, Telling(observer), file, vocabulary, identity, log, log_file, tuple(transports))
        try:
            trio.run(_run, parts)
        finally:
            StopSignal.ignore()


@dataclass(frozen=True, slots=True)
class _Parts:
    """What is open before the event loop starts."""

    config: ServeConfig
    observer: Observer
    file: ModelFile
    vocabulary: Vocabulary
    identity: bytes
    log: SessionLog
    log_file: Path
    transports: tuple[Transport, ...]


async def _run(parts: _Parts) -> None:
    config, observer = parts.config, parts.observer
    bus, activity = Bus(), Activity()
    stop = StopSignal()
    try:
        book = Book(parts.log, bus, lambda: time.time_ns() // 1_000_000)
    except StoreError as fault:
        raise StartError(f"the session log cannot be read: {fault}") from fault
    _parked_files(parts).reconcile(lambda session: (head := book.heads.any(session)) is not None and not head.purged)
    room = EngineRoom(
        book, bus, _load(parts), config.worker_argv, observer.notice, config.tool_lease_ms, config.patience
    )
    room.schedule.class_lanes = dict(config.class_lanes)
    room.schedule.max_waiting = config.max_queue
    ready = await _load_model(room, stop, observer)
    if ready is None:
        return
    cases = _use_cases(parts, ready, book, bus, room)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(room.run)
        nursery.start_soon(cases.pinning.run)
        nursery.start_soon(cases.evaluating.run)
        nursery.start_soon(cases.ingesting.run)
        nursery.start_soon(cases.conversing.kept.run)
        nursery.start_soon(Idling(book, room, cases.feeds, config.session_idle).run)
        if not math.isinf(config.feed_keep):
            nursery.start_soon(_erasing(parts, book, bus, room, config.feed_keep).run)
        if config.pressure is not None:
            nursery.start_soon(Pressure(room, *config.pressure, memory_in_use, observer.notice).run)
        async with trio.open_nursery() as accepting:
            for transport in parts.transports:
                accepting.start_soon(transport.serve, cases, activity, nursery)
            observer.ready(_info(parts, ready))
            _LOG.info("ready: %s lanes of %s tokens", config.max_batch, ready.context)
            await stop.asked.wait()
            observer.notice("stopping: streams end, the log is flushed")
            accepting.cancel_scope.cancel()
        await drain(cases.generating, cases.ingesting, room, bus, activity, config.drain_timeout)
        nursery.cancel_scope.cancel()
    _LOG.info("stopped")


async def _load_model(room: EngineRoom, stop: StopSignal, observer: Observer) -> Ready | None:
    """The worker's word that it is ready; None where a signal came first. Raises StartError."""
    ready: Ready | None = None
    refused: Exception | None = None
    async with trio.open_nursery() as nursery:

        async def give_up_on_signal() -> None:
            await stop.asked.wait()
            nursery.cancel_scope.cancel()

        nursery.start_soon(give_up_on_signal)
        try:
            ready = await room.start(observer.loading)
        except (LoadRefused, WorkerDied) as fault:
            refused = fault
        nursery.cancel_scope.cancel()
    if refused is not None:
        raise StartError(f"the model does not load: {refused}") from refused
    return ready


def _use_cases(parts: _Parts, ready: Ready, book: Book, bus: Bus, room: EngineRoom) -> UseCases:
    model = ServedModel(
        name=parts.file.path.stem,
        vocabulary=parts.vocabulary,
        dialect=dialect_of(parts.vocabulary),
        window=ready.context,
        build=f"{__version__} {ready.build}",
        identity=parts.identity,
    )
    generating = Generating(book, room, model, leases=parts.config.tool_lease_ms > 0)
    evaluating = Evaluating(book, bus, room, generating, model)
    flashing = Flashing(book, generating, model, evaluating, room.metrics)
    config = parts.config
    limits = Limits(config.completion_rate, config.completion_burst, config.completion_deadline_ms)
    data_room = Room(ready.context, parts.config.query_reserve)
    ingesting = Ingesting(book, bus, room, generating, model, data_room)
    keeping = Keeping(book, bus, room, generating, _parked_files(parts))
    kept = KeptRequests(book, room, keeping, config.keep_requests)
    return UseCases(
        appending=Appending(book, room, model),
        asking=Asking(book, room, generating, model, evaluating, flashing),
        branching=Branching(book, model),
        completing=Completing(book, generating, model, room.metrics, limits),
        conversing=Conversing(book, generating, model, kept),
        evaluating=evaluating,
        feeds=Feeds(
            book,
            bus,
            room,
            generating,
            keeping,
            ingesting,
            evaluating,
            FeedEvents(bus),
            data_room,
            parts.config.live_sessions,
        ),
        flashing=flashing,
        generating=generating,
        ingesting=ingesting,
        keeping=keeping,
        pinning=Pinning(book, room),
        reading=Reading(book, bus, room),
        tooling=Tooling(book, room),
        turning=Turning(book, bus, room, generating, model, evaluating),
        watching=Watching(book, room, model.name, parts.file.path, time.monotonic()),
    )


def _erasing(parts: _Parts, book: Book, bus: Bus, room: EngineRoom, seconds: float) -> Erasing:
    parked = _parked_files(parts)
    workers = {_park_directory(parts)} if parts.config.park else set()
    elsewhere = ParkedFiles(tuple(set(parked.directories) - workers), parts.identity)
    return Erasing(book, bus, room, parked, elsewhere, seconds)


def _parked_files(parts: _Parts) -> ParkedFiles:
    return ParkedFiles(tuple({parts.config.sessions / "park", _park_directory(parts)}), parts.identity)


def _park_directory(parts: _Parts) -> Path:
    return parts.config.park_dir or parts.config.sessions / "park"


def _load(parts: _Parts) -> Load:
    config = parts.config
    return Load(
        model=str(parts.file.path),
        context=config.max_context or sizing.context(parts.file, config.max_batch, config.kv_type),
        lanes=config.max_batch,
        spare=sizing.sequences(config.max_batch),
        threads=config.threads or 0,
        gpu_layers=ALL_LAYERS if config.gpu_layers is None else config.gpu_layers,
        host_bytes=config.kv_host_bytes if config.kv_host_bytes is not None else sizing.host_bytes(),
        held_pct=min(config.pin_budget_pct, config.pressure[1] if config.pressure is not None else 100),
        kv_type=KV_TYPES.index(config.kv_type),
        identity=parts.identity,
        park=str(_park_directory(parts)) if config.park else "",
        park_bytes=config.park_bytes,
    )


def _info(parts: _Parts, ready: Ready) -> ServerInfo:
    config = parts.config
    urls = {way.kind: way.url for way in parts.transports}
    return ServerInfo(
        model=parts.file.path.stem,
        model_path=parts.file.path,
        devices=ready.devices,
        gpu_layers=ready.gpu_layers,
        threads=f"{ready.threads}" if config.threads else f"auto, {ready.threads} now",
        context=ready.context,
        lanes=config.max_batch,
        model_bytes=ready.model_bytes,
        kv_bytes=ready.kv_bytes,
        socket=config.socket,
        sessions=config.sessions,
        log_file=parts.log_file,
        chat=parts.vocabulary.template is not None,
        pid=os.getpid(),
        http=urls.get("http"),
        http_open=any(way.open for way in parts.transports),
        web=urls.get("web"),
        web_token=web_token(config) if config.web is not None else None,
    )


def _checked_levels(config: ServeConfig) -> dict[str, int]:
    try:
        return parse_filter(config.log_filter)
    except BadFilter as fault:
        raise StartError(str(fault), 2) from fault


def _find_model(name: str | None) -> ModelFile:
    try:
        return inspect(locate(name).absolute())
    except ModelError as fault:
        raise StartError(str(fault)) from fault


def _open_many() -> None:
    """Let as many files be open as the system allows this process: each connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_OPEN if hard == resource.RLIM_INFINITY else min(MOST_OPEN, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):
            _LOG.info("at most %s files can be open", soft)


def _make_directory(path: Path, what: str) -> None:
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.chmod(0o700)
    except OSError as fault:
        raise StartError(f"{what} directory {path}: {fault.strerror}") from fault


def _identity(path: Path) -> bytes:
    with path.open("rb") as file:
        digest = hashlib.blake2b(file.read(IDENTITY_BYTES), digest_size=16)
    digest.update(path.stat().st_size.to_bytes(8, "little"))
    return digest.digest()


def _slug(file: ModelFile) -> str:
    """A name for the database that a person recognises; nothing of it is trusted as a path."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", file.path.stem).strip("-")[:40] or "model"
