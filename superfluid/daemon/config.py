"""What `superfluid serve` was asked for, checked, and how it tells what it is doing."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from superfluid.daemon.engine.watchdog import PATIENCE
from superfluid.protocol.codes import Qos


@dataclass(frozen=True, slots=True)
class HttpConfig:
    """The HTTP listener. `hosts` and `origins` are allowed beside loopback ones; without a key everybody may ask."""

    host: str = "127.0.0.1"
    port: int = 8453
    api_key: str | None = None
    hosts: tuple[str, ...] = ()
    """names by which clients may call this server"""
    origins: tuple[str, ...] = ()
    """web pages that may ask, as browsers name them: `https://host:port`"""
    default_qos: int = Qos.AGENT
    qos_header: bool = True
    """whether a request may name its class"""
    temperature: float | None = None
    """None, here and next, is what each dialect has"""
    top_p: float | None = None
    top_k: int = 0
    min_p: float = 0.0


@dataclass(frozen=True, slots=True)
class WebConfig:
    """The browser transport, on a loopback address. `origins` are web pages that may open a WebSocket."""

    host: str = "127.0.0.1"
    port: int = 8460
    origins: tuple[str, ...] = ()
    """as browsers name them: `http://localhost:5173`"""


@dataclass(frozen=True, slots=True)
class ServeConfig:
    """Settings of one daemon. None stands for `auto` wherever it is allowed.

    `max_context` is tokens a session may put on the model's input, `max_batch` lanes that decode together,
    `kv_host_bytes` the host memory for KV of sessions that do not run, `drain_timeout` seconds.
    """

    model: str | None
    """path to a GGUF file; None is the embedded model"""
    socket: Path
    sessions: Path
    max_context: int | None = None
    max_batch: int = 8
    threads: int | None = None
    gpu_layers: int | None = None
    kv_host_bytes: int | None = None
    kv_type: str = "f16"
    """how KV elements are stored, a name in `ticks.KV_TYPES`"""
    park: bool = False
    """whether KV of sessions that do not run goes to disk"""
    park_dir: Path | None = None
    """None is `<sessions>/park`"""
    park_bytes: int = 20 << 30
    pin_budget_pct: int = 50
    """how much of the host memory for KV pins may take, in hundredths; no more than the low of `pressure`"""
    pressure: tuple[int, int] | None = (85, 70)
    """(high, low) hundredths of the machine's memory in use: above high, KV in host memory is halved and halved
    again, below low it may grow back; None does not look"""
    class_lanes: tuple[tuple[int, int], ...] = ()
    """(class, most lanes) for the classes that have a cap"""
    max_queue: int = 256
    """generations that may wait for a lane"""
    completion_rate: float = 10.0
    """fill-in-the-middle completions a second for each connection, and for all of `/web/rpc`; 0 is without bound"""
    completion_burst: float = 20.0
    """how many of them at once"""
    completion_deadline_ms: int = 0
    """how long one may take; 0 is as long as it takes"""
    tool_lease_ms: int = 0
    """how long a tool call may stay without its result, in milliseconds; 0 is for ever"""
    query_reserve: int = 512
    """tokens of the context that data leave free, for questions and replies"""
    session_idle: float = 3600.0
    """seconds after which the KV of a session with a name that nobody uses leaves memory; 0 is never"""
    feed_keep: float = math.inf
    """seconds for which the log keeps data that has left its session's stream; infinity is for ever"""
    live_sessions: int = 256
    """most sessions that may have a name at once"""
    keep_requests: float = 0.0
    """seconds that a stateless request stays in the log after its end; 0 logs none, infinity is for ever"""
    patience: float = PATIENCE
    """seconds without a sign of life after which a worker that owes something is taken to hang"""
    drain_timeout: float = 60.0
    log_file: Path | None = None
    """None is `<sessions>/logs/serve.log`"""
    log_filter: str = "info"
    """a level, or a comma-separated list of `logger=level`"""
    http: HttpConfig | None = None
    web: WebConfig | None = None
    worker_argv: tuple[str, ...] = field(default=())
    """what to run instead of the engine worker (tests)"""


def web_token(config: ServeConfig) -> Path:
    """Where the token of the browser transport is written."""
    return config.sessions / "web-token"


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """What a daemon that is ready says about itself. Sizes are bytes, `context` tokens a session."""

    model: str
    model_path: Path
    devices: tuple[str, ...]
    gpu_layers: int
    threads: str
    context: int
    lanes: int
    model_bytes: int
    kv_bytes: int
    socket: Path
    sessions: Path
    log_file: Path
    chat: bool
    """whether the model has a chat template"""
    pid: int
    http: str | None = None
    """the HTTP listener's address, as a URL"""
    http_open: bool = False
    """whether others than this machine can reach it, and need no key"""
    web: str | None = None
    """the browser transport's address, as a URL"""
    web_token: Path | None = None
    """where its token is"""


class StartError(Exception):
    """The daemon cannot start. `str()` is one line for the user; `exit_code` 1 for the world, 2 for the arguments."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class Observer(Protocol):
    """Who watches a daemon start and stop; called from its event loop, so none of these may block."""

    def loading(self, permille: int) -> None: ...

    def ready(self, info: ServerInfo) -> None: ...

    def notice(self, text: str) -> None:
        """Something the operator should see: a respawned worker, a full disk, a drain that begins."""
