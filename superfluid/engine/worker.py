"""The worker's loop: load what the first frame says, then one request after another until the daemon leaves."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import assert_never

from superfluid.engine.artifact import Key
from superfluid.engine.backend import Backend, LoadError
from superfluid.engine.channel import Channel, Closed
from superfluid.engine.logs import say
from superfluid.engine.neighbours import Neighbours, thread_limit, usable_cores
from superfluid.engine.parking import Parking
from superfluid.engine.parks import Parks
from superfluid.engine.pulse import Pulse
from superfluid.engine.rounds import Rounds
from superfluid.engine.threads import Adaptive, Fixed, Governor
from superfluid.engine.tiers import Tiers
from superfluid.protocol.errors import DecodeError
from superfluid.protocol.ticks import (
    Forget,
    Forgotten,
    Hold,
    Interrupt,
    KvChange,
    Limit,
    Load,
    LoadFailed,
    Loading,
    Moved,
    Park,
    Parked,
    Ready,
    Retire,
    Shift,
    Tick,
    unpack,
)

Opener = Callable[[Load, int, Callable[[float], bool]], Backend]
"""Makes the backend: what to load, with how many threads, and whom to tell the progress (0 to 1), who answers false
to give up. Raises LoadError."""

_STEP = 10
"""Thousandths between two reports of progress."""


def serve(channel: Channel, open_backend: Opener, *, check: bool = False) -> None:
    """Run until the daemon is gone, which raises Closed, or sends garbage, which raises DecodeError.

    With `check`, the books are balanced after every request, and AssertionError is raised where they do not.
    """
    load = channel.next()
    if not isinstance(load, Load):
        raise DecodeError(f"the first request is {type(load).__name__}, not Load")
    governor, pulse = _governor(load.threads), Pulse(channel.send)
    try:
        backend = open_backend(load, governor.threads, _Progress(channel, pulse))
    except LoadError as fault:
        channel.poll()  # raises Closed where that is why the load was given up
        channel.send(LoadFailed(str(fault)))
        while True:
            channel.next()
    with ExitStack() as stack:
        stack.enter_context(closing(backend))
        parks = _parks(load, backend)
        tiers = Tiers(backend, load.host_bytes, load.held_pct, parks)
        parking = None if parks is None else stack.enter_context(closing(Parking(tiers, parks)))
        channel.send(_ready(backend, governor.threads, tiers.changes()))
        rounds = Rounds(backend, tiers, governor, channel.send, partial(interrupted, channel), pulse.beat)
        stack.enter_context(closing(rounds))
        # What is alive now stays so: later collections need not walk it between rounds.
        gc.freeze()
        while True:
            if parking is not None:
                _park_until_asked(channel, parking, tiers)
            request = channel.next()
            match request:
                case Tick():
                    channel.send(rounds.run(request))
                case Forget(stream=bytes(stream)):
                    tokens = unpack(stream)
                    tiers.forget_strays(request.sessions, tokens)
                    if parking is not None:
                        parking.forget_strays(request.sessions, tokens)
                    _tell(channel, tiers)
                    channel.send(Forgotten(request.ticket))
                case Forget():
                    rounds.forget(frozenset(request.sessions))
                    if parking is not None:
                        parking.forget(request.sessions)
                    _tell(channel, tiers)
                    channel.send(Forgotten(request.ticket))
                case Interrupt():
                    pass  # of a tick that ended before it came
                case Park():
                    written = 0 if parking is None else parking.park(request.budget_ms / 1000)
                    channel.send(Parked(len(parks or ()), written, tiers.changes()))
                case Hold():
                    tiers.hold(request.sessions)
                case Limit():
                    tiers.limit(request.host_bytes)
                    _tell(channel, tiers)
                case Retire():
                    if parking is not None:
                        parking.park(request.budget_ms / 1000, request.sessions)
                    tiers.forget(request.sessions)
                    _tell(channel, tiers)
                case Shift():
                    tiers.shift(request.session, request.start, request.count)
                case Load():
                    raise DecodeError("a second Load")
                case _:
                    assert_never(request)
            if check:
                rounds.check()


def _parks(load: Load, backend: Backend) -> Parks | None:
    """What is kept on disk, None where nothing is, or can be."""
    if not load.park:
        return None
    key = Key(load.identity, load.kv_type, backend.traits.swa_full, backend.traits.build)
    parks = Parks(Path(load.park), load.park_bytes, key)
    try:
        parks.scan()
    except OSError as fault:
        say("warning", f"KV is not parked: {fault}")
        return None
    return parks


def _park_until_asked(channel: Channel, parking: Parking, tiers: Tiers) -> None:
    """Let KV go to disk while the daemon wants nothing. Raises Closed, DecodeError."""
    seconds: float | None = 0.0
    while not channel.wait(seconds):
        seconds = parking.idle()
        _tell(channel, tiers)
    parking.begin()


def _tell(channel: Channel, tiers: Tiers) -> None:
    """Say where KV lies that has moved, if any has. Raises Closed."""
    if changes := tiers.changes():
        channel.send(Moved(changes))


def interrupted(channel: Channel, number: int, at_once: bool = False) -> bool:
    """Whether the daemon wants tick `number` ended, in the middle of a round even. Raises Closed where it is gone."""
    return any(
        isinstance(request, Interrupt) and request.number == number and request.at_once >= at_once
        for request in channel.poll()
    )


class _Progress:
    """Tells the daemon how far a load is, in steps, and gives up when the daemon is gone."""

    def __init__(self, channel: Channel, pulse: Pulse) -> None:
        self._channel = channel
        self._pulse = pulse
        self._told = -_STEP

    def __call__(self, done: float) -> bool:
        permille = min(1000, max(0, int(done * 1000)))
        try:
            if permille - self._told >= _STEP:
                self._told = permille
                self._channel.send(Loading(permille))
            self._pulse.beat()
            self._channel.poll()
        except Closed:
            return False
        return True


def _governor(threads: int) -> Governor:
    if threads:
        return Fixed(threads)
    return Adaptive(thread_limit(), len(usable_cores()), Neighbours().read)


def _ready(backend: Backend, threads: int, kv: tuple[KvChange, ...]) -> Ready:
    traits = backend.traits
    return Ready(
        context=traits.context,
        sequences=traits.sequences,
        threads=threads,
        devices=traits.devices,
        gpu_layers=traits.gpu_layers,
        model_bytes=traits.model_bytes,
        kv_bytes=traits.kv_bytes,
        build=traits.build,
        kv=kv,
    )
