"""SIGTERM and SIGINT: the first asks the daemon to stop, those after it change nothing, to the very end."""

from __future__ import annotations

import signal

import trio

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopSignal:
    """Listens from its making on, inside a running event loop; `asked` is set by the first signal.

    From then on the process ignores both: a second Ctrl-C must not cut short the writing of what is drawn.
    """

    def __init__(self) -> None:
        self.asked = trio.Event()
        self._token = trio.lowlevel.current_trio_token()
        for number in SIGNALS:
            signal.signal(number, self._heard)

    def _heard(self, *_: object) -> None:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        try:
            self._token.run_sync_soon(self.asked.set)
        except trio.RunFinishedError:
            pass  # it is stopping already, for a reason of its own
