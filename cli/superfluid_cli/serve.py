"""`superfluid serve`: options checked and turned into the daemon's configuration."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from superfluid_cli import places, terminal, values
from superfluid_cli.exits import Exit, UsageError

if TYPE_CHECKING:
    from superfluid.daemon.config import Observer, ServeConfig


def _option(
    flag: str, *aliases: str, help: str, metavar: str = "N", parser: Any = None, default: str | bool = False
) -> Any:
    """An option with its environment variable, `SUPERFLUID_<FLAG>`; `default` is what the help says it is."""
    return typer.Option(
        flag,
        *aliases,
        help=help,
        metavar=metavar if parser is not None else None,
        parser=parser,
        envvar="SUPERFLUID_" + flag.removeprefix("--").replace("-", "_").upper(),
        show_envvar=True,
        show_default=default,
    )


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
DrainTimeout = Annotated[
    float,
    _option(
        "--drain-timeout",
        metavar="TIME",
        parser=values.duration,
        help="How long replies in progress may go on at shutdown: 60, 30s, 2m.",
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
NoHttp = Annotated[bool, _option("--no-http", help="Accepted for compatibility: there is no HTTP server yet.")]
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
    drain_timeout: DrainTimeout = 60.0,
    log_filter: LogFilter = None,
    verbose: Verbose = False,
    log_file: LogFile = None,
    log_dir: LogDir = None,
    no_http: NoHttp = False,
    no_tui: NoTui = False,
) -> int:
    """Load a model and serve sessions on it until SIGTERM or Ctrl-C, which let replies in progress finish."""
    log_file = _one_of(ctx, "log_file", log_file, "log_dir", log_dir and log_dir / "serve.log")
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
        "drain_timeout": drain_timeout,
        "log_file": log_file,
        "log_filter": level or "info",
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
    from superfluid.daemon.config import ServeConfig, StartError
    from superfluid_cli.progress import Watcher

    with Watcher() as watcher:
        try:
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
