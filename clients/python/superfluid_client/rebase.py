"""Edits of a rebase: ranges of events, the last one not included, dropped or replaced."""

from __future__ import annotations

from typing import Any

from superfluid_client.codes import Role, role_code


def drop_events(start: int, stop: int) -> dict[str, Any]:
    """Leave out the events `start` to `stop - 1`."""
    return {"Drop": {"from": start, "to": stop}}


def replace_events(start: int, stop: int, role: Role, text: str) -> dict[str, Any]:
    """Put one message in the place of the events `start` to `stop - 1`."""
    return {"Replace": {"from": start, "to": stop, "role": role_code(role), "text": text}}
