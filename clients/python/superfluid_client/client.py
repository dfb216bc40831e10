"""A daemon: its sessions, and every request that it takes."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from superfluid_client.credential import credential
from superfluid_client.errors import SuperfluidError, refusal
from superfluid_client.sampling import Sampling
from superfluid_client.session import Session, Tool
from superfluid_client.transport import Transport

DEFAULT_URL = "http://127.0.0.1:8460"
TIMEOUT = 600.0
"""Seconds without a byte from the daemon after which a call has failed."""


class Client:
    """Talks to one `superfluid serve --web`. What is not given comes from the environment, then from the defaults.

    Raises ValueError for a URL that is not http://host[:port], and SuperfluidError where there is no token.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        token_file: str | os.PathLike[str] | None = None,
        timeout: float = TIMEOUT,
    ) -> None:
        url = url or os.environ.get("SUPERFLUID_WEB_URL") or DEFAULT_URL
        known = credential(token, token_file)
        self.transport = Transport(url, known, timeout)
        known()

    def __repr__(self) -> str:
        return f"Client({self.transport.url!r})"

    def call(self, verb: str, args: dict[str, Any] | None = None) -> tuple[str, Any]:
        """Send any request; the name and the fields of what it was answered with, None for no fields.

        Raises SuperfluidError where the answer is an `Err`.
        """
        reply = self.transport.post("/web/rpc", {verb: args})
        if isinstance(reply, str):
            return reply, None
        if not isinstance(reply, dict) or len(reply) != 1:
            raise SuperfluidError(f"{verb}: the answer is no reply of the session API")
        ((variant, payload),) = reply.items()
        if variant == "Err":
            raise refusal(payload["message"])
        return variant, payload

    def session(
        self,
        sampling: Sampling | None = None,
        *,
        system: str | None = None,
        tools: Iterable[Tool] | None = None,
    ) -> Session:
        """A new session, opened with the system message and the tools given."""
        sampling = sampling or Sampling()
        _, created = self.call("Create", {"parent": None, "params": sampling.to_wire()})
        session = Session(self, created["session"], sampling)
        declared = list(tools or ())
        if declared:
            session.declare(system=system, tools=declared)
        elif system is not None:
            session.system(system)
        return session

    def get(self, id: int) -> Session:
        """The session of that id, of this start of the daemon or an earlier one."""
        return Session(self, id, Sampling.from_wire(self.inspect(id)["params"]))

    def inspect(self, id: int) -> dict[str, Any]:
        """Everything that the daemon knows about a session: summary, params, events, tokens and more."""
        _, payload = self.call("Inspect", {"session": id})
        inspection: dict[str, Any] = payload["inspection"]
        return inspection

    def sessions(self, include_archived: bool = False) -> list[dict[str, Any]]:
        """A summary of every session."""
        _, payload = self.call("Sessions", {"include_archived": include_archived})
        summaries: list[dict[str, Any]] = payload["sessions"]
        return summaries

    def tree(self) -> list[list[Any]]:
        """Every session as `[id, parent, fork_at]`."""
        _, payload = self.call("Tree")
        nodes: list[list[Any]] = payload["nodes"]
        return nodes

    def complete(self, prefix: str, suffix: str = "", max_tokens: int = 64, mode: int = 0) -> dict[str, Any]:
        """Fill in between two texts, without a session: `text`, `tokens`, `cached` and `expired`.

        `mode` is 0 for prefix first, 1 for suffix first.
        """
        args = {"prefix": prefix, "suffix": suffix, "mode": mode, "max_tokens": max_tokens}
        _, payload = self.call("Complete", args)
        completion: dict[str, Any] = payload
        return completion

    def metrics(self) -> str:
        """The Prometheus exposition."""
        _, payload = self.call("Metrics")
        text: str = payload["text"]
        return text

    def set_background_rate(self, divisor: int) -> None:
        """Let background sessions draw on every so many ticks only."""
        self.call("SetBackgroundRate", {"divisor": divisor})

    def health(self) -> bool:
        """Whether the daemon answers."""
        return self.transport.answers("/web/health")
