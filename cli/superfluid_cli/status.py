"""`superfluid status`, and what it and `superfluid top` say about a daemon."""

from __future__ import annotations

import sys

from superfluid.protocol import requests, responses
from superfluid_cli import options, tables, terminal, values
from superfluid_cli.counting import counted
from superfluid_cli.progress import devices

PATIENCE = 10.0
"""Seconds for an answer that waits for nothing."""

HEADINGS = ("session", "class", "prompt", "warm", "remaining", "drawn")
"""The columns of a running reply: tokens of its prompt, found warm, still to compute, and drawn so far."""

_TIERS = ("sequences", "host memory", "disk")


def status(json: options.Json = False, socket: options.Socket = None) -> None:
    """Show what the daemon is doing now. In a pipe: names and values; with --json, one object."""
    with options.connect(socket, PATIENCE) as client:
        report = client.ask(requests.Status(), responses.StatusReport)
    if json:
        terminal.line(_pretty(report))
    elif terminal.on_terminal(sys.stdout):
        tables.show_facts(facts(report))
        if report.running:
            terminal.line("")
            tables.show_table(HEADINGS, lanes(report))
    else:
        running = [("lane", ", ".join(map(" ".join, zip(HEADINGS, row, strict=True)))) for row in lanes(report)]
        tables.show_facts([*facts(report), *running])


def facts(report: responses.StatusReport) -> list[tuple[str, str]]:
    """Names and values, the running replies left out."""
    queue = ", ".join(f"{values.qos_name(number)} {count}" for number, count in enumerate(report.queue))
    kv = [
        (f"kv {tier}", f"{counted(sessions, 'session')}, {counted(tokens, 'token')}")
        for tier, sessions, tokens in zip(_TIERS, report.kv_sessions, report.kv_tokens, strict=True)
    ]
    return [
        ("model", report.model),
        ("file", report.model_path),
        ("devices", devices(report.devices, report.gpu_layers)),
        ("threads", str(report.threads)),
        ("context", f"{counted(report.context, 'token')} a session"),
        ("daemon", f"superfluid {report.version}, pid {report.pid}, up {period(report.uptime)}"),
        ("sessions", str(report.sessions)),
        ("lanes", f"{len(report.running)} of {report.lanes} running"),
        ("queue", queue),
        *kv,
        ("prefill", f"{report.prefill_rate:.1f} tokens/s"),
        ("decode", f"{report.decode_rate:.1f} tokens/s"),
        ("respawns", str(report.respawns)),
        ("ticks", str(report.ticks)),
    ]


def lanes(report: responses.StatusReport) -> list[tuple[str, ...]]:
    """The running replies, as rows under HEADINGS."""
    return [
        (
            str(lane.session),
            values.qos_name(lane.qos_class),
            str(lane.prompt),
            str(lane.warm),
            str(lane.remaining),
            str(lane.drawn),
        )
        for lane in report.running
    ]


def period(seconds: int) -> str:
    """A length of time by its two largest units."""
    days, hours, minutes = seconds // 86_400, seconds // 3600 % 24, seconds // 60 % 60
    parts = [(days, "d"), (hours, "h"), (minutes, "min"), (seconds % 60, "s")]
    while len(parts) > 1 and not parts[0][0]:
        parts.pop(0)
    return " ".join(f"{number} {unit}" for number, unit in parts[:2])


def _pretty(report: responses.StatusReport) -> str:
    import json

    from superfluid.protocol import jsonform

    return json.dumps(jsonform.to_json(responses.StatusReport, report), ensure_ascii=False, indent=2)
