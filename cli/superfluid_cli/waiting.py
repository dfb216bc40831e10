"""A sign of life while the model reads: nothing else tells a long prompt from a program that hangs."""

from __future__ import annotations

import sys

from superfluid_cli import terminal
from superfluid_cli.client import Client

PATIENCE = 3.0
"""Seconds without a word after which there is one."""


class Sign:
    """A line on stderr, where a person watches, until the first word of a reply. Whoever writes clears it first."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._shown = ""
        if terminal.on_terminal(sys.stderr):
            client.unheard = self._show

    def clear(self) -> None:
        """Take the line away, for good."""
        self._client.unheard = None
        if self._shown:
            self._write("\r" + " " * len(self._shown) + "\r")
            self._shown = ""

    def _show(self, seconds: float) -> None:
        if seconds >= PATIENCE:
            self._shown = f"waiting for the model, {seconds:.0f} s; Ctrl-C gives up"
            self._write("\r" + terminal.dim(self._shown, sys.stderr))

    def _write(self, text: str) -> None:
        if sys.stderr is not None:
            sys.stderr.write(text)
            sys.stderr.flush()
