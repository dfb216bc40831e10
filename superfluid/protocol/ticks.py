"""What daemon and engine worker say to each other: ticks one way, drawn tokens and outcomes the other.

A *lane* is one running generation. The daemon names the tokens that a lane wants computed and which lanes run;
where their KV comes from is the worker's own business, and the outcome says how many came warm. Token ids travel
packed (`pack`), four bytes each, since a prompt may hold a hundred thousand of them. Nothing here is kept: the two
ends are always the same build.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable
from dataclasses import dataclass

from superfluid.protocol.records import GenParams
from superfluid.protocol.wire import F32, U8, U32, U64

ALL_LAYERS = (1 << 31) - 1
"""`Load.gpu_layers` that puts every layer on the GPU, whatever their number."""


KV_TYPES = ("f16", "q8_0", "q4_0")
"""Element types of the KV cache, by `Load.kv_type`."""


def park_name(identity: bytes, session: int) -> str:
    """The file of a session's KV in a park directory; both processes must know it, since a purge erases it even
    where no worker runs."""
    return f"{identity.hex()[:12]}-{session}.park"


def unfinished_park_name(identity: bytes, session: int) -> str:
    """The same while it is being written; it is left where a worker dies in the middle."""
    return f"{identity.hex()[:12]}-{session}.writing"


def pack(tokens: Iterable[int]) -> bytes:
    """Token ids as little-endian u32, back to back."""
    packed = array("I", tokens)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def unpack(packed: bytes) -> array[int]:
    """The token ids of `pack`. Raises ValueError where the length is no multiple of four."""
    tokens = array("I")
    tokens.frombytes(packed)
    if sys.byteorder == "big":
        tokens.byteswap()
    return tokens


# --- daemon to worker ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Load:
    """The first frame: load this model. `context` is tokens a sequence; `threads` 0 means: decide by load."""

    model: str
    context: U32
    lanes: U32
    spare: U32
    """sequences beside the lanes', which keep the KV of sessions that do not run"""
    threads: U32
    gpu_layers: U32
    host_bytes: U64
    """how much KV may lie in host memory"""
    held_pct: U8 = 50
    """how much of it `Hold` may keep from others, in hundredths"""
    kv_type: U8 = 0
    """how KV elements are stored: a `KV_TYPES` index"""
    identity: bytes = b""
    """digest of the model file: what is parked is of use to the same model only"""
    park: str = ""
    """directory for KV on disk, empty for none"""
    park_bytes: U64 = 0
    """how much KV may lie there"""


@dataclass(frozen=True, slots=True)
class LaneOptions:
    """What a lane asks for beyond what a session keeps. Penalties look at the last 64 tokens of its input."""

    ignore_end: bool = False
    """end-of-turn tokens do not end the lane, and are not drawn"""
    repeat_penalty: F32 = 1.0
    frequency_penalty: F32 = 0.0
    presence_penalty: F32 = 0.0
    logit_bias: tuple[tuple[U32, F32], ...] = ()
    ephemeral: bool = False
    """the lane copies KV from wherever it lies, also from its own session's, and leaves nothing when it ends: no
    sequence, no host copy, no `KvChange`"""
    gap: bool = False
    """the outcome tells the logit gap of the first token drawn"""


@dataclass(frozen=True, slots=True)
class LaneStart:
    """A new lane. It draws at most `limit` tokens, the one at index n of its tokens by the draw `offset + n`."""

    lane: U64
    session: U64
    tokens: bytes
    params: GenParams
    offset: U64
    limit: U32
    options: LaneOptions = LaneOptions()


@dataclass(frozen=True, slots=True)
class Tick:
    """One step of work: a few rounds, each one decode over all lanes in `run`, best first.

    `ends` are lanes that nobody wants any more; their KV stays until its room is needed. The worker starts no round
    after `budget_ms`, and puts at most `chunk` prompt tokens into one; beside a lane that decodes, one more.
    """

    number: U64
    rounds: U32
    chunk: U32
    budget_ms: U32
    starts: tuple[LaneStart, ...]
    run: tuple[U64, ...]
    ends: tuple[U64, ...]


@dataclass(frozen=True, slots=True)
class Interrupt:
    """End tick `number` after the round in progress, or with `at_once` in it where that is a long one, whose work is
    then lost; not in two rounds in a row of the same prompt. Late ones are ignored."""

    number: U64
    at_once: bool = False


@dataclass(frozen=True, slots=True)
class Forget:
    """Drop every trace of these sessions, sequences, host copies and what is on disk, and say `Forgotten`. With a
    packed `stream`, only what is neither a part of it nor goes on from it, and lanes keep what they have."""

    ticket: U64
    sessions: tuple[U64, ...]
    stream: bytes | None = None


@dataclass(frozen=True, slots=True)
class Park:
    """Write to disk what KV is in sequences and host memory, the latest used first, for at most `budget_ms`; then
    say `Parked`. The daemon sends no ticks meanwhile."""

    budget_ms: U32


@dataclass(frozen=True, slots=True)
class Hold:
    """Keep the KV of these sessions before that of others, until told otherwise; replaces the list before."""

    sessions: tuple[U64, ...]


@dataclass(frozen=True, slots=True)
class Limit:
    """From now on, so much KV may lie in host memory; what does not fit goes."""

    host_bytes: U64


@dataclass(frozen=True, slots=True)
class Shift:
    """Take `count` tokens, from index `start` on, out of the session's idle sequence, and move the rest down.

    Several in a row are each applied to what the one before left. Nothing changes where the session has no idle
    sequence with that many tokens, or the model's KV cannot be moved; what is then missing is prefilled.
    """

    session: U64
    start: U64
    count: U64


@dataclass(frozen=True, slots=True)
class Retire:
    """Nobody has used these sessions for long: their KV goes to disk, where that is on, and leaves everything else.
    Writing takes at most `budget_ms`; what is not on disk then is lost."""

    sessions: tuple[U64, ...]
    budget_ms: U32


WorkerRequest = Load | Tick | Interrupt | Forget | Park | Hold | Limit | Shift | Retire


# --- worker to daemon ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Loading:
    """Progress of a load, in thousandths."""

    permille: U32


@dataclass(frozen=True, slots=True)
class Ready:
    """The model is loaded. `context` is tokens a sequence, as granted; sizes are bytes."""

    context: U32
    sequences: U32
    threads: U32
    devices: tuple[str, ...]
    gpu_layers: U32
    model_bytes: U64
    kv_bytes: U64
    build: str
    kv: tuple[KvChange, ...] = ()
    """what was found on disk"""


@dataclass(frozen=True, slots=True)
class LoadFailed:
    reason: str


@dataclass(frozen=True, slots=True)
class Drawn:
    """The tokens of one round or several, in order: (lane, token)."""

    tick: U64
    tokens: tuple[tuple[U64, U32], ...]


@dataclass(frozen=True, slots=True)
class LaneOutcome:
    """What a tick did for one lane.

    `drawn` is all of the tick's tokens (packed): those that `Drawn` frames announced, and what came after the last of
    them. `warm` is the number of prompt tokens that came from kept KV, 0 until the lane has KV. `remaining` is prompt
    tokens not computed yet. `finish` is a `codes.Finish`; with ERROR, `fault` is a `codes.Fault` and `detail` says
    what happened. `gap` is by how much the highest logit stood above the second where the first token was drawn,
    before any bias or penalty; 0.0 until then, or not asked for.
    """

    lane: U64
    drawn: bytes
    warm: U64
    prefilled: U32
    remaining: U32
    finish: U8
    fault: U8
    detail: str
    gap: F32 = 0.0


NOWHERE, IN_SEQUENCE, IN_HOST, ON_DISK = range(4)
"""Tiers of KV, as `KvChange` tells them."""


@dataclass(frozen=True, slots=True)
class KvChange:
    """Where a session's KV lies now, `covered` tokens of it: the best tier that holds some."""

    session: U64
    tier: U8
    covered: U64


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a tick. Times are microseconds; `prefill_us` counts the rounds that held prompt tokens."""

    tick: U64
    lanes: tuple[LaneOutcome, ...]
    rounds: U32
    elapsed_us: U64
    prefill_us: U64
    prefill_tokens: U32
    decode_tokens: U32
    threads: U32
    kv: tuple[KvChange, ...]


@dataclass(frozen=True, slots=True)
class Forgotten:
    ticket: U64


@dataclass(frozen=True, slots=True)
class Parked:
    """The answer to `Park`: how many sessions are on disk now, and what of it is new."""

    sessions: U32
    written: U32
    kv: tuple[KvChange, ...]


@dataclass(frozen=True, slots=True)
class Moved:
    """KV lies elsewhere now, without a tick that would tell it."""

    kv: tuple[KvChange, ...]


@dataclass(frozen=True, slots=True)
class Alive:
    """A sign of life from the middle of something long. It says nothing else, and answers nothing."""


WorkerReply = Loading | Ready | LoadFailed | Drawn | Outcome | Forgotten | Parked | Moved | Alive
