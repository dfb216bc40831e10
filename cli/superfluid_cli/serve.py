"""`superfluid serve`: options checked and turned into the daemon's configuration."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from superfluid_cli import completion_flags, feed_flags, http_flags, kv_flags, places, terminal, values, web_flags
from superfluid_cli.exits import Exit, UsageError
from superfluid_cli.flags import option as _option

if TYPE_CHECKING:
    from superfluid.daemon.config import Observer, ServeConfig


_THREADS = values.auto_or(values.whole(1, 1024))
_CONTEXT = values.auto_or(values.whole(512, (1 << 31) - 1))
_LAYERS = values.auto_or(values.layers)
_HOST_KV = values.auto_or(values.size(1 << 20))

Model = Annotated[
    str | None, typer.Argument(metavar="MODEL", help="A GGUF file. Without one: the small model that comes along.")
]
ModelOption = Annotated[str | None, _option("--model", metavar="MODEL", parser=str, help="The same as MODEL.")]
Socket = Annotated[
    Path | None,
    _option(
        "--socket",
        metavar="PATH",
        parser=values.socket_path,
        help="Where to listen.",
        default="superfluid.sock in $SUPERFLUID_HOME",
    ),
]
Sessions = Annotated[
    Path | None,
    _option(
        "--sessions",
        metavar="DIR",
        parser=values.path,
        help="Where sessions are kept.",
        default="sessions in $SUPERFLUID_HOME",
    ),
]
MaxContext = Annotated[
    int | None,
    _option(
        "--max-context",
        metavar="N|auto",
        parser=_CONTEXT,
        help="Tokens a session may hold; at least 512.",
        default="auto",
    ),
]
MaxBatch = Annotated[
    int,
    _option(
        "--max-batch",
        "--max-batch-size",
        parser=values.whole(1, 256),
        help="Replies generated together; 1 to 256.",
        default=True,
    ),
]
Threads = Annotated[
    int | None, _option("--threads", metavar="N|auto", parser=_THREADS, help="Threads that compute.", default="auto")
]
GpuLayers = Annotated[
    int | None,
    _option("--gpu-layers", metavar="N|all|auto", parser=_LAYERS, help="Layers on the GPU.", default="auto"),
]
KvHost = Annotated[
    int | None,
    _option(
        "--kv-host-mb",
        metavar="SIZE|auto",
        parser=_HOST_KV,
        help="Host memory that keeps idle sessions warm; MiB, or with a unit.",
        default="auto",
    ),
]
ToolLease = Annotated[
    int,
    _option(
        "--tool-lease-ms",
        metavar="N",
        parser=values.whole(0, (1 << 53) - 1),
        help="Milliseconds that a tool call may wait for its result; 0 is for ever.",
        default=True,
    ),
]
DrainTimeout = Annotated[
    float,
    _option(
        "--drain-timeout",
        metavar="TIME",
        parser=values.duration,
        help="How long a shutdown may take: streams end, KV is parked, the log is flushed. 60, 30s, 2m.",
        default="60s",
    ),
]
LogFilter = Annotated[
    str | None,
    _option(
        "--log-filter",
        metavar="FILTER",
        parser=values.log_filter,
        help="A level, or a list of logger=level.",
        default="info",
    ),
]
Verbose = Annotated[bool, _option("--verbose", "-v", help="Log at level debug.")]
LogFile = Annotated[
    Path | None,
    _option(
        "--log-file",
        metavar="FILE",
        parser=values.path,
        help="Where to log.",
        default="logs/serve.log in the sessions directory",
    ),
]
LogDir = Annotated[
    Path | None, _option("--log-dir", metavar="DIR", parser=values.path, help="Log to serve.log in DIR.")
]
NoTui = Annotated[bool, _option("--no-tui", help="Accepted for compatibility: there is no screen interface yet.")]


def serve(
    ctx: typer.Context,
    model: Model = None,
    model_option: ModelOption = None,
    socket: Socket = None,
    sessions: Sessions = None,
    max_context: MaxContext = None,
    max_batch: MaxBatch = 8,
    threads: Threads = None,
    gpu_layers: GpuLayers = None,
    kv_host_mb: KvHost = None,
    kv_type: kv_flags.KvType = "f16",
    park: kv_flags.Park = False,
    park_dir: kv_flags.ParkDir = None,
    park_budget_gb: kv_flags.ParkBudget = 20 << 30,
    pin_budget_pct: kv_flags.PinBudget = 50,
    os_pressure: kv_flags.OsPressure = True,
    pressure_high: kv_flags.PressureHigh = 85,
    pressure_low: kv_flags.PressureLow = 70,
    class_lanes: kv_flags.ClassLanes = None,
    max_queue: kv_flags.MaxQueue = 256,
    query_reserve: feed_flags.QueryReserve = 512,
    live_sessions: feed_flags.LiveSessions = 256,
    session_idle: feed_flags.SessionIdle = 3600.0,
    feed_keep: feed_flags.FeedKeep = math.inf,
    tool_lease_ms: ToolLease = 0,
    completion_rate: completion_flags.Rate = 10.0,
    completion_burst: completion_flags.Burst = 20.0,
    completion_deadline_ms: completion_flags.Deadline = 0,
    drain_timeout: DrainTimeout = 60.0,
    log_filter: LogFilter = None,
    verbose: Verbose = False,
    log_file: LogFile = None,
    log_dir: LogDir = None,
    http: http_flags.Http = None,
    no_http: http_flags.NoHttp = False,
    api_key: http_flags.ApiKey = None,
    http_host: http_flags.HttpHost = None,
    http_origin: http_flags.HttpOrigin = None,
    http_default_qos: http_flags.DefaultQos = 2,
    no_http_qos_header: http_flags.NoQosHeader = False,
    keep_requests: http_flags.KeepRequests = 0.0,
    temperature: http_flags.Temperature = None,
    top_p: http_flags.TopP = None,
    top_k: http_flags.TopK = 0,
    min_p: http_flags.MinP = 0.0,
    web: web_flags.Web = None,
    web_origin: web_flags.WebOrigin = None,
    no_tui: NoTui = False,
) -> int:
    """Load a model and serve sessions on it until SIGTERM or Ctrl-C, which end what is being generated."""
    log_file = _one_of(ctx, "log_file", log_file, "log_dir", log_dir and log_dir / "serve.log")
    host, port = http or http_flags.DEFAULT
    listener = {
        "host": host,
        "port": port,
        "api_key": api_key,
        "hosts": tuple(http_host or ()),
        "origins": tuple(http_origin or ()),
        "default_qos": http_default_qos,
        "qos_header": not no_http_qos_header,
        "temperature": temperature,
        "top_p": top_p,
        "top_k": top_k,
        "min_p": min_p,
    }
    browser = None if web is None else {"host": web[0], "port": web[1], "origins": tuple(web_origin or ())}
    level = _one_of(ctx, "verbose", "debug" if verbose else None, "log_filter", log_filter)
    settings: dict[str, Any] = {
        "model": _one_of(ctx, "model", model, "model_option", model_option),
        "socket": _listening(socket),
        "sessions": (sessions or places.default_sessions()).absolute(),
        "max_context": values.unless_auto(max_context),
        "max_batch": max_batch,
        "threads": values.unless_auto(threads),
        "gpu_layers": values.unless_auto(gpu_layers),
        "kv_host_bytes": values.unless_auto(kv_host_mb),
        "kv_type": kv_type,
        "park": park,
        "park_dir": park_dir and park_dir.absolute(),
        "park_bytes": park_budget_gb,
        "pin_budget_pct": pin_budget_pct,
        "pressure": _pressure(os_pressure, pressure_high, pressure_low),
        "class_lanes": class_lanes or (),
        "max_queue": max_queue,
        "query_reserve": query_reserve,
        "live_sessions": live_sessions,
        "session_idle": session_idle,
        "feed_keep": feed_keep,
        "tool_lease_ms": tool_lease_ms,
        "completion_rate": completion_rate,
        "completion_burst": completion_burst,
        "completion_deadline_ms": completion_deadline_ms,
        "keep_requests": keep_requests,
        "drain_timeout": drain_timeout,
        "log_file": log_file and log_file.absolute(),
        "log_filter": level or "info",
        "http": listener if _wants_http(ctx, http is not None, no_http) else None,
        "web": browser,
    }
    return _run(settings)


_FLAGS = {"model": "MODEL", "model_option": "--model"}


def _one_of(ctx: typer.Context, first: str, here: Any, second: str, there: Any) -> Any:
    """Whichever of two parameters is given; one on the command line wins over one from the environment.

    Raises UsageError where both are given in the same place and differ.
    """
    if here is None or there is None or here == there:
        return there if here is None else here
    typed = [_typed(ctx, name) for name in (first, second)]
    if typed[0] != typed[1]:
        return here if typed[0] else there
    names = [_FLAGS.get(name, "--" + name.replace("_", "-")) for name in (first, second)]
    raise UsageError(f"{names[0]} and {names[1]} contradict each other: {here} and {there}")


def _pressure(look: bool, high: int, low: int) -> tuple[int, int] | None:
    if low >= high:
        raise UsageError(f"--pressure-low: expected a number below --pressure-high, {high}, got {low}")
    return (high, low) if look else None


def _wants_http(ctx: typer.Context, named: bool, no_http: bool) -> bool:
    """Raises UsageError where --http and --no-http are given in the same place."""
    if not named or not no_http:
        return not no_http
    typed = _typed(ctx, "http")
    if typed == _typed(ctx, "no_http"):
        raise UsageError("--http and --no-http contradict each other")
    return typed


def _typed(ctx: typer.Context, name: str) -> bool:
    """Whether a parameter stood on the command line."""
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _listening(socket: Path | None) -> Path:
    """Where to listen, as an absolute path: that is what has to fit."""
    path = (socket or places.default_socket()).absolute()
    if not places.fits(path):
        raise UsageError(f"--socket: {path} is too long: at most {places.LONGEST_SOCKET_PATH} bytes fit")
    return path


def _run(settings: dict[str, Any]) -> int:
    """Run the daemon in this process until it has drained."""
    from superfluid.daemon.config import HttpConfig, ServeConfig, StartError, WebConfig
    from superfluid_cli.progress import Watcher

    with Watcher() as watcher:
        try:
            for name, kind in (("http", HttpConfig), ("web", WebConfig)):
                if settings[name] is not None:
                    settings[name] = kind(**settings[name])
            _daemon()(ServeConfig(**settings), watcher)
        except StartError as fault:
            watcher.close()
            terminal.complain(str(fault))
            return fault.exit_code
    return Exit.OK


def _daemon() -> Callable[[ServeConfig, Observer], None]:
    """The daemon's way in. Imported when nothing else can go wrong: it brings trio and the model's library."""
    from superfluid.serving import serve as run

    return run
