"""What can go wrong below the session log."""

from __future__ import annotations


class StoreError(Exception):
    """The disk or the database said no; nothing of the transaction was kept. `str()` is one line without content."""


class StillThere(StoreError):
    """What a purge erases is erased durably, but copies of it are left: the disk said no to removing them."""


class DamagedRecord(Exception):
    """A record that fails its checksum or does not decode. Its session is refused, the others are not."""

    def __init__(self, session: int, event: int) -> None:
        super().__init__(f"session {session}, event {event}")
        self.session = session
        self.event = event
