"""`superfluid serve` up to the daemon's door: a stand-in module takes the configuration and plays the daemon."""

import math
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from superfluid.daemon.config import HttpConfig, Observer, ServeConfig, ServerInfo, StartError
from superfluid.protocol.ticks import ALL_LAYERS
from superfluid_cli.progress import devices
from tests.cli.conftest import Ran

Cli = Callable[..., Ran]
Daemon = Callable[[ServeConfig, Observer], None]

INFO = ServerInfo(
    model="tiny",
    model_path=Path("/m/tiny.gguf"),
    devices=(),
    gpu_layers=0,
    threads="2",
    context=2048,
    lanes=8,
    model_bytes=3 << 29,
    kv_bytes=64 << 20,
    socket=Path("/s/superfluid.sock"),
    sessions=Path("/s/sessions"),
    log_file=Path("/s/sessions/logs/serve.log"),
    chat=True,
    pid=7,
    http="http://127.0.0.1:8453",
)


class StandIn:
    """Plays the daemon; `configs` is what it was started with."""

    def __init__(self) -> None:
        self.configs: list[ServeConfig] = []
        self.behave: Callable[[Observer], None] = lambda observer: None

    def serve(self, config: ServeConfig, observer: Observer) -> None:
        self.configs.append(config)
        self.behave(observer)


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    stand_in = StandIn()
    module = types.ModuleType("superfluid.serving")
    module.serve = stand_in.serve  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "superfluid.serving", module)
    return stand_in


def test_defaults(cli: Cli, daemon: StandIn, folder: Path, socket_path: Path) -> None:
    assert cli("serve") == Ran(0, "", "")
    assert daemon.configs == [
        ServeConfig(model=None, socket=socket_path, sessions=folder / ".superfluid" / "sessions", http=HttpConfig()),
    ]


def test_every_flag(cli: Cli, daemon: StandIn) -> None:
    flags = (
        "m.gguf --socket /s/sock --sessions /s/sessions --max-context 4096 --max-batch 4 --threads 3 "
        "--gpu-layers all --kv-host-mb 2GiB --drain-timeout 2m --log-filter info,superfluid.store=debug "
        "--log-file /l/log --no-http --no-tui"
    )
    assert cli("serve", *flags.split()) == Ran(0, "", "")
    assert daemon.configs == [
        ServeConfig(
            model="m.gguf",
            socket=Path("/s/sock"),
            sessions=Path("/s/sessions"),
            max_context=4096,
            max_batch=4,
            threads=3,
            gpu_layers=ALL_LAYERS,
            kv_host_bytes=2 << 30,
            drain_timeout=120.0,
            log_file=Path("/l/log"),
            log_filter="info,superfluid.store=debug",
        )
    ]


def test_every_environment_variable(cli: Cli, daemon: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "MODEL": "m.gguf",
        "SOCKET": "/s/sock",
        "SESSIONS": "/s/sessions",
        "MAX_CONTEXT": "auto",
        "MAX_BATCH": "2",
        "THREADS": "1",
        "GPU_LAYERS": "5",
        "KV_HOST_MB": "10",
        "DRAIN_TIMEOUT": "1",
        "VERBOSE": "1",
        "LOG_DIR": "/l",
        "NO_HTTP": "true",
        "NO_TUI": "0",
    }.items():
        monkeypatch.setenv(f"SUPERFLUID_{name}", value)
    assert cli("serve", "--threads", "auto", "--max-batch-size", "3").code == 0
    assert daemon.configs == [
        ServeConfig(
            model="m.gguf",
            socket=Path("/s/sock"),
            sessions=Path("/s/sessions"),
            max_batch=3,
            gpu_layers=5,
            kv_host_bytes=10 << 20,
            drain_timeout=1.0,
            log_file=Path("/l/serve.log"),
            log_filter="debug",
        )
    ]


@pytest.mark.parametrize(("text", "seconds"), [("0", 0.0), ("90", 90.0), ("2h", 7200.0), ("forever", math.inf)])
def test_feed_keep(cli: Cli, daemon: StandIn, monkeypatch: pytest.MonkeyPatch, text: str, seconds: float) -> None:
    assert cli("serve").code == 0
    monkeypatch.setenv("SUPERFLUID_FEED_KEEP", text)
    assert cli("serve").code == 0
    assert cli("serve", "--feed-keep", text).code == 0
    assert [config.feed_keep for config in daemon.configs] == [math.inf, seconds, seconds]
    assert "expected forever or a time" in cli("serve", "--feed-keep", "long").err


def test_what_is_typed_wins_over_the_environment(cli: Cli, daemon: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUPERFLUID_MODEL", "a.gguf")
    monkeypatch.setenv("SUPERFLUID_LOG_DIR", "/l")
    monkeypatch.setenv("SUPERFLUID_LOG_FILTER", "error")
    assert cli("serve", "b.gguf", "--log-file", "/x", "-v").code == 0
    (config,) = daemon.configs
    assert (config.model, config.log_file, config.log_filter) == ("b.gguf", Path("/x"), "debug")


def test_paths_are_absolute(cli: Cli, daemon: StandIn) -> None:
    cli("serve", "--socket", "s", "--sessions", "here")
    assert daemon.configs[0].socket == Path.cwd() / "s"
    assert daemon.configs[0].sessions == Path.cwd() / "here"


def test_the_model_named_twice_alike(cli: Cli, daemon: StandIn) -> None:
    assert cli("serve", "a.gguf", "--model", "a.gguf").code == 0
    assert daemon.configs[0].model == "a.gguf"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("a", "--model", "b"), "MODEL and --model contradict each other: a and b"),
        (("--log-file", "/a", "--log-dir", "/b"), "--log-file and --log-dir contradict"),
        (("-v", "--log-filter", "info"), "--verbose and --log-filter contradict"),
        (("--max-context", "511"), "invalid value for '--max-context'"),
        (("--max-batch", "0"), "invalid value for '--max-batch' / '--max-batch-size'"),
        (("--max-batch", "257"), "invalid value for '--max-batch'"),
        (("--threads", "0"), "invalid value for '--threads'"),
        (("--gpu-layers", "some"), "invalid value for '--gpu-layers'"),
        (("--kv-host-mb", "5XB"), "invalid value for '--kv-host-mb'"),
        (("--drain-timeout", "soon"), "invalid value for '--drain-timeout'"),
        (("--log-filter", "loud"), "invalid value for '--log-filter'"),
        (("--max-contxt", "512"), "no such option: --max-contxt; did you mean --max-context"),
    ],
)
def test_bad_values_never_reach_the_daemon(
    cli: Cli, daemon: StandIn, arguments: tuple[str, ...], message: str
) -> None:
    ran = cli("serve", *arguments)
    assert (ran.code, ran.out, daemon.configs) == (2, "", [])
    assert ran.err.startswith(f"superfluid: {message}")
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize("code", [1, 2])
def test_a_daemon_that_cannot_start(cli: Cli, daemon: StandIn, code: int) -> None:
    def behave(observer: Observer) -> None:
        observer.loading(10)
        raise StartError("no such model: m.gguf", code)

    daemon.behave = behave
    assert cli("serve", "m.gguf") == Ran(code, "", "loading the model\nsuperfluid: no such model: m.gguf\n")


def test_what_the_operator_sees_in_a_pipe(cli: Cli, daemon: StandIn) -> None:
    def behave(observer: Observer) -> None:
        for permille in (0, 500, 1000):
            observer.loading(permille)
        observer.ready(INFO)
        observer.notice("draining\x1b[0m")

    daemon.behave = behave
    ran = cli("serve")
    assert (ran.code, ran.out) == (0, "")
    assert ran.err.splitlines() == [
        "loading the model",
        "model     tiny",
        "file      /m/tiny.gguf",
        "devices   CPU",
        "threads   2",
        "context   2048 tokens a session",
        "lanes     8",
        "memory    1.5 GiB model + 64 MiB KV",
        "sessions  /s/sessions",
        "log       /s/sessions/logs/serve.log",
        "http      openai api on http://127.0.0.1:8453/v1",
        "ready     serving on /s/superfluid.sock (pid 7)",
        "draining\\e[0m",
    ]


@pytest.mark.parametrize(
    ("names", "layers", "said"),
    [
        ((), 0, "CPU"),
        (("CPU",), 0, "CPU"),
        (("CUDA0 (H200)", "CPU"), 0, "CPU, nothing on CUDA0 (H200)"),
        (("CUDA0 (H200)", "CPU"), 12, "CUDA0 (H200), CPU, 12 layers on the GPU"),
        (("CUDA0 (H200)", "CPU"), ALL_LAYERS, "CUDA0 (H200), CPU, all layers on the GPU"),
    ],
)
def test_where_the_model_computes(names: tuple[str, ...], layers: int, said: str) -> None:
    assert devices(names, layers) == said
