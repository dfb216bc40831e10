"""SIGTERM and SIGINT: the first asks the daemon to stop, those after it change nothing, to the very end."""

from __future__ import annotations

import signal

import trio

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopSignal:
    """Listens from its making on, inside a running event loop, until `ignore`; `asked` is set by the first signal.

    A second Ctrl-C must not cut short the writing of what is drawn, nor change the exit status at the last moment.
    """

    def __init__(self) -> None:
        self.asked = trio.Event()
        self._token = trio.lowlevel.current_trio_token()
        for number in SIGNALS:
            signal.signal(number, self._heard)

    def _heard(self, *_: object) -> None:
        try:
            self._token.run_sync_soon(self.asked.set)
        except trio.RunFinishedError:
            pass  # the event loop has ended already

    @staticmethod
    def ignore() -> None:
        """To be called when the event loop has ended, for what is left of the process."""
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)
