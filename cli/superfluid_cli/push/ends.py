"""The other end of a push: what the pump needs of a daemon, and the daemon of this machine's socket."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from superfluid.protocol import requests, responses
from superfluid_cli import options
from superfluid_cli.exits import ConnectionBroken, Exit, ServerSaid
from superfluid_cli.push.outbox import Acknowledgement, Batch, Standing
from superfluid_cli.values import IdOrName

PATIENCE = 60.0
"""Seconds for the answer to a push, which waits for nothing."""


class End(Protocol):
    """One connection to a session. Each call raises ConnectionBroken where it is over, ServerSaid at a refusal."""

    def fileno(self) -> int:
        """What becomes readable when something comes that was not asked for; `hear` takes it then."""
        ...

    def hear(self) -> None: ...

    def push(self, batch: Batch) -> Acknowledgement: ...

    def standing(self) -> Standing: ...

    def close(self) -> None: ...


class SocketEnd:
    """A session of the daemon at a unix socket. Raises NoDaemon where nothing answers."""

    def __init__(self, socket: Path | None, session: IdOrName) -> None:
        self._client = options.connect(socket, PATIENCE)
        try:
            self.session = self._client.id_of(session)
        except ServerSaid as refusal:
            self._client.close()
            if refusal.code is not Exit.NO_SESSION:
                raise
            raise ServerSaid(f"{refusal}; --create makes it") from None
        except BaseException:
            self._client.close()
            raise

    def fileno(self) -> int:
        return self._client.fileno()

    def hear(self) -> None:
        """The daemon says nothing unasked on this connection, so it has closed it."""
        raise ConnectionBroken(f"the daemon at {self._client.path} closed the connection")

    def push(self, batch: Batch) -> Acknowledgement:
        request = requests.PushNumbered(self.session, batch.entries, batch.sender, batch.first)
        said = self._client.ask(request, responses.Pushed)
        return Acknowledgement(
            said.pushed,
            said.dropped,
            said.pending,
            said.total_pushed,
            said.total_dropped,
            said.data_version,
            said.taken,
        )

    def standing(self) -> Standing:
        feed = self._client.ask(requests.FeedState(self.session), responses.Feed).feed
        return Standing(feed.taken, feed.total_pushed, feed.total_dropped, feed.run, feed.base)

    def close(self) -> None:
        self._client.close()
