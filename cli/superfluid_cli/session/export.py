"""`superfluid session export`"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from superfluid.protocol import records, responses
from superfluid_cli import options, terminal, values
from superfluid_cli.client import Client
from superfluid_cli.exits import CliError, UsageError

_FORMATS = {"jsonl": "jsonl", "otlp-jsonl": "traces.otlp.jsonl"}
"""The formats, and how the names of their files end."""

_SECONDS = 10.0
"""How long a collector may take."""


def _format(text: str) -> str:
    if text not in _FORMATS:
        raise ValueError(f"expected {' or '.join(_FORMATS)}, got {text!r}")
    return text


def _endpoint(text: str) -> str:
    if not text.startswith(("http://", "https://")):
        raise ValueError(f"expected the address of a collector such as http://127.0.0.1:4318, got {text!r}")
    return text.rstrip("/")


Format = Annotated[
    str, typer.Option("--format", metavar="FORMAT", parser=_format, help="jsonl, an event a line, or otlp-jsonl.")
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out", metavar="DIR", parser=values.path, help="Write a file in DIR, mode 0600, instead of stdout."
    ),
]
Content = Annotated[bool, typer.Option("--include-content", help="Show texts, not only how long they are.")]
Model = Annotated[
    str | None, typer.Option("--model", metavar="NAME", help="What otlp-jsonl calls the model. Default: nothing.")
]
Endpoint = Annotated[
    str | None,
    typer.Option(
        "--endpoint",
        metavar="URL",
        parser=_endpoint,
        help="Send otlp-jsonl to the collector at URL/v1/traces instead.",
    ),
]
Egress = Annotated[
    bool, typer.Option("--allow-content-egress", help="Let --include-content count for --endpoint too.")
]


def export(
    session: options.Session,
    format_: Format = "jsonl",
    out: Out = None,
    include_content: Content = False,
    model: Model = None,
    endpoint: Endpoint = None,
    allow_content_egress: Egress = False,
    socket: options.Socket = None,
) -> None:
    """Print a session's log for other programs, without what anybody said unless --include-content asks for it.

    What has the shape of a secret is left out of the texts all the same: keys of services, tokens, private keys,
    passwords in addresses and beside words such as `password`. That finds shapes, not secrets: look at what you pass
    on.
    """
    if endpoint is not None and out is not None:
        raise UsageError("--endpoint and --out exclude each other")
    if endpoint is not None and include_content and not allow_content_egress:
        raise UsageError("--include-content would send texts to another machine; --allow-content-egress lets it")
    with options.reach(session, socket) as (client, id_):
        events = _log(client, id_)
    if endpoint is not None:
        _send(endpoint, _trace(id_, events, include_content, model))
        return
    lines = _LINES[format_](id_, events, include_content, model)
    if out is None:
        terminal.lines(lines)
    else:
        _write(out / f"session-{id_}.{_FORMATS[format_]}", lines)


def _log(client: Client, session: int) -> tuple[records.Event, ...]:
    """The whole log, as it is now. It comes as a backlog, which has no bound on its length."""
    due = client.summary(session).events
    events: list[records.Event] = []
    while len(events) < due:
        for item in client.subscribe(session, len(events), provisional=False):
            match item:
                case responses.SubEvent(event=event):
                    events.append(event)
                case responses.SubEnded(reason=reason) if reason != "lagged":
                    raise CliError(f"session {session}: its log did not come to the end: {terminal.shown(reason)}")
            if len(events) == due:
                break
    return tuple(events)


def _jsonl(session: int, events: tuple[records.Event, ...], content: bool, model: str | None) -> list[str]:
    from superfluid_cli import exported

    return list(exported.lines(session, events, content))


def _trace(session: int, events: tuple[records.Event, ...], content: bool, model: str | None) -> list[str]:
    from superfluid_cli import traces

    return [traces.trace(session, events, content, model)]


_Lines = Callable[[int, tuple[records.Event, ...], bool, str | None], list[str]]
_LINES: dict[str, _Lines] = {"jsonl": _jsonl, "otlp-jsonl": _trace}


def _write(path: Path, lines: list[str]) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
        os.fchmod(descriptor, 0o600)
        file.writelines(f"{line}\n" for line in lines)
    terminal.note(f"wrote {path}")


def _send(endpoint: str, lines: list[str]) -> None:
    import urllib.error
    import urllib.request

    url = f"{endpoint}/v1/traces"
    for line in lines:
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(url, line.encode("utf-8", "replace"), headers, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=_SECONDS) as reply:
                terminal.line(f"{url}: {reply.status}")
        except urllib.error.HTTPError as fault:
            with fault:
                raise CliError(f"{url}: {fault.code} {fault.reason}") from None
        except (OSError, ValueError) as fault:
            raise CliError(f"{url}: {getattr(fault, 'reason', None) or fault}") from None
