"""From a source to a session: reads no faster than the session ingests, and outlives the daemon's restarts."""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Callable, Iterator

from superfluid.protocol.refusals import ShuttingDown
from superfluid_cli import terminal
from superfluid_cli.exits import CliError, ConnectionBroken, NoDaemon, ServerSaid
from superfluid_cli.push.ends import End
from superfluid_cli.push.outbox import Acknowledgement, Outbox
from superfluid_cli.push.signals import Stop
from superfluid_cli.push.source import Source

SHORTEST_LOOK = 0.02
LONGEST_LOOK = 0.5
"""Seconds between two looks at what the session has ingested, while anything waits for that."""

SHORTEST_PAUSE = 0.1
LONGEST_PAUSE = 2.0
"""Seconds between two tries to find a daemon again."""


class Pump:
    """One push, from its first entry to its last.

    `connect` makes a connection, `told` hears of each acknowledgement. `gather` is how many seconds entries wait for
    company before they are sent, `patience` how many a lost daemon may be away. With `wait` the end comes once all
    is ingested, without it once all is acknowledged.
    """

    def __init__(
        self,
        source: Source,
        connect: Callable[[], End],
        told: Callable[[Acknowledgement], None],
        gather: float,
        patience: float,
        wait: bool,
    ) -> None:
        self.outbox = Outbox()
        self.connected = False
        self.connected_once = False
        self._source = source
        self._connect = connect
        self._told = told
        self._gather = gather
        self._patience = patience
        self._wait = wait
        self._coming: Iterator[str] = iter(())
        self._more = False
        self._since: float | None = None
        self._look = SHORTEST_LOOK
        self._full_until = 0.0
        """until when nothing is sent, since the session had no room for all of it"""

    def undelivered(self) -> list[str]:
        """What was read and is not with the daemon."""
        return [*self.outbox.undelivered(self.connected), *(self._coming if self._more else ())]

    def run(self, stop: Stop) -> None:
        """Raises CliError where it cannot go on; what is left is in the outbox then."""
        end = self._connected(self._connect())
        while True:
            try:
                try:
                    while not self._step(end, stop):
                        pass
                    return
                finally:
                    end.close()
            except ConnectionBroken as fault:
                end = self._found_again(stop, fault)
            except ServerSaid as refusal:
                if str(refusal) != str(ShuttingDown()):
                    raise
                end = self._found_again(stop, refusal)

    def _step(self, end: End, stop: Stop) -> bool:
        """Do what can be done now, or wait until something can. Whether all is done."""
        if stop.asked and not self._source.ended:
            self._stop_reading()
        self._fill()
        if self.outbox.unsent and self._is_time_to_send():
            self._send(end)
            return False
        exhausted = self._source.ended and not self._more
        if exhausted and not self.outbox.unsent and not (self._wait and len(self.outbox) and not stop.asked):
            return True
        reading = not self._source.ended and not self._more
        if reading and self._source.fileno() is None:
            self._read()
            return False
        ready = _readable([self._source if reading else None, end, stop], self._patience_now())
        if stop in ready:
            stop.heard()
        if end in ready:
            end.hear()
        if self._source in ready:
            self._read()
        elif not ready and len(self.outbox):
            self._look_at(end)
        return False

    def _patience_now(self) -> float | None:
        """Seconds until something is to be done that nothing announces."""
        waits = []
        if len(self.outbox) > self.outbox.unsent:
            waits.append(self._look)
        if self._since is not None:
            waits.append(max(0.0, max(self._since + self._gather, self._full_until) - time.monotonic()))
        return min(waits) if waits else None

    # --- entries --------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        self._coming = self._source.read()
        self._more = True

    def _fill(self) -> None:
        """Take what has been read into the outbox, as far as there is room."""
        while self._more and not self.outbox.full:
            entry = next(self._coming, None)
            if entry is None:
                self._more = False
            else:
                self.outbox.add(entry)
                if self._since is None:
                    self._since = time.monotonic()

    def _stop_reading(self) -> None:
        """Read what the pipe holds, once, then no more."""
        descriptor = self._source.fileno()
        if not self._more and descriptor is not None and _readable([self._source], 0.0):
            self._read()
        self._source.stop()
        if terminal.on_terminal(sys.stderr):
            terminal.note("\ndelivering what was read; Ctrl-C again gives up")

    def _is_time_to_send(self) -> bool:
        assert self._since is not None
        if time.monotonic() < self._full_until:
            return False
        return self._source.ended or self.outbox.full or time.monotonic() >= self._since + self._gather

    def _send(self, end: End) -> None:
        batch = self.outbox.batch()
        said = end.push(batch)
        self.outbox.acknowledge(said)
        if not self.outbox.unsent:
            self._since = None
        if said.pushed:
            self._look = SHORTEST_LOOK
            self._told(said)
        if said.pushed < len(batch.entries):
            self._full_until = time.monotonic() + self._look
            self._look = min(self._look * 2, LONGEST_LOOK)

    def _look_at(self, end: End) -> None:
        before = len(self.outbox)
        self.outbox.look(end.standing())
        self._look = SHORTEST_LOOK if len(self.outbox) < before else min(self._look * 2, LONGEST_LOOK)

    # --- connections ----------------------------------------------------------------------------------------------

    def _connected(self, end: End) -> End:
        try:
            self.outbox.connect(end.standing())
        except BaseException:
            end.close()
            raise
        self.connected = self.connected_once = True
        if self.outbox.unsent:
            self._since = time.monotonic() - self._gather
        return end

    def _found_again(self, stop: Stop, why: CliError) -> End:
        """A new connection, once there is a daemon again. Raises `why` after `patience`, or at a signal."""
        self.connected = False
        terminal.note(f"{why}; looking for it again")
        give_up = time.monotonic() + self._patience
        pause = SHORTEST_PAUSE
        while not stop.asked:
            try:
                end = self._connected(self._connect())
            except (NoDaemon, ConnectionBroken):
                if time.monotonic() + pause > give_up:
                    break
                if _readable([stop], pause):
                    stop.heard()
                pause = min(pause * 2, LONGEST_PAUSE)
            else:
                terminal.note("connected again")
                return end
        raise why


def _readable(things: list[Source | End | Stop | None], timeout: float | None) -> list[object]:
    """Those of `things` that can be read now or within `timeout` seconds."""
    waited = {thing.fileno(): thing for thing in things if thing is not None}
    ready, _, _ = select.select([fd for fd in waited if fd is not None], [], [], timeout)
    return [waited[descriptor] for descriptor in ready]
