"""What `superfluid serve` tells its operator: a bar while the model loads, a block when ready, notices after that."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from superfluid_cli import terminal
from superfluid_cli.values import ALL_LAYERS

if TYPE_CHECKING:
    from superfluid.daemon.config import ServerInfo


class Watcher:
    """The daemon's Observer on stderr: Rich where a person looks, plain lines anywhere else."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._task: Any = None
        self._announced = False
        self._rich = terminal.on_terminal(sys.stderr)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Take the bar away; a terminal left with a hidden cursor would outlive us."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def loading(self, permille: int) -> None:
        if self._rich:
            if self._bar is None:
                self._start_bar()
            self._bar.update(self._task, completed=permille, refresh=True)
        elif not self._announced:
            terminal.note("loading the model")
        self._announced = True

    def ready(self, info: ServerInfo) -> None:
        self.close()
        width = max(len(name) for name, _ in _facts(info))
        terminal.note("\n".join(f"{name:<{width}}  {terminal.shown(value)}" for name, value in _facts(info)))
        if info.http_open:
            terminal.note(f"WARNING: whoever can reach {info.http} can use this server; set --api-key")

    def notice(self, text: str) -> None:
        if self._bar is not None:
            self._bar.console.print(terminal.shown(text), markup=False, highlight=False)
        else:
            terminal.note(terminal.shown(text))

    def _start_bar(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

        console = Console(stderr=True, color_system="auto" if terminal.colourful(sys.stderr) else None)
        self._bar = Progress(
            TextColumn("loading the model"),
            BarColumn(),
            TaskProgressColumn(),
            console=console,
            transient=True,
            auto_refresh=False,  # drawn when there is news: no thread beside the daemon's loop
        )
        self._task = self._bar.add_task("load", total=1000)
        self._bar.start()


def devices(names: Sequence[str], gpu_layers: int) -> str:
    """Where the model computes, in words."""
    if gpu_layers == 0:
        idle = [name for name in names if name != "CPU"]
        return f"CPU, nothing on {', '.join(idle)}" if idle else "CPU"
    layers = "all" if gpu_layers >= ALL_LAYERS else str(gpu_layers)
    return f"{', '.join(names) or 'CPU'}, {layers} layers on the GPU"


def _facts(info: ServerInfo) -> list[tuple[str, str]]:
    """What the ready block says, in order."""
    memory = f"{_size(info.model_bytes)} model + {_size(info.kv_bytes)} KV"
    return [
        ("model", info.model + ("" if info.chat else "  (no chat template: raw text only)")),
        ("file", str(info.model_path)),
        ("devices", devices(info.devices, info.gpu_layers)),
        ("threads", info.threads),
        ("context", f"{info.context} tokens a session"),
        ("lanes", str(info.lanes)),
        ("memory", memory),
        ("sessions", str(info.sessions)),
        ("log", str(info.log_file)),
        ("http", _http(info)),
        *([("web", f"session api on {info.web}, token in {info.web_token}")] if info.web is not None else []),
        ("ready", f"serving on {info.socket} (pid {info.pid})"),
    ]


def _http(info: ServerInfo) -> str:
    if info.http is None:
        return "none"
    return f"openai api on {info.http}/v1"


def _size(count: int) -> str:
    if count >= 1 << 30:
        return f"{count / (1 << 30):.1f} GiB"
    return f"{count / (1 << 20):.0f} MiB"
