"""Use cases on a log, without a worker: for what happens between sessions and the disk."""

from __future__ import annotations

from pathlib import Path

from superfluid.daemon.book import Book
from superfluid.daemon.bus import Bus
from superfluid.daemon.engine.room import EngineRoom
from superfluid.daemon.parked_files import ParkedFiles
from superfluid.daemon.sessions.branching import Branching
from superfluid.daemon.sessions.generating import Generating
from superfluid.daemon.sessions.keeping import Keeping
from superfluid.protocol.ticks import Load
from superfluid.store.log import SessionLog
from tests.support.daemon import FAKE

NOW = 1_700_000_000_000
IDENTITY = b"0" * 16
"""of the model"""


class Still:
    """The clock says `now`, which is `NOW` at first; KV may lie in the directories `parked`."""

    def __init__(self, log: SessionLog, *parked: Path) -> None:
        bus = self.bus = Bus()
        self.log = log
        self.now = NOW
        self.book = Book(log, bus, lambda: self.now)
        self.room = EngineRoom(self.book, bus, Load("", 64, 1, 1, 0, 0, 0), FAKE, print)
        self.branching = Branching(self.book, None)  # type: ignore[arg-type]
        generating = Generating(self.book, self.room, None, leases=False)  # type: ignore[arg-type]
        self.keeping = Keeping(self.book, bus, self.room, generating, ParkedFiles(parked, IDENTITY))
