"""What the daemon is told of where KV lies: the differences, since it was told last."""

from __future__ import annotations

from collections.abc import Sequence

from superfluid.engine.host import HostCopies
from superfluid.engine.parks import Parks
from superfluid.engine.slots import Slot
from superfluid.protocol.ticks import IN_HOST, IN_SEQUENCE, NOWHERE, ON_DISK, KvChange


class Telling:
    """Compares the tiers with what was told of them. What is ephemeral is in none of them."""

    def __init__(self, slots: Sequence[Slot], host: HostCopies, parks: Parks | None) -> None:
        self._slots = slots
        self._host = host
        self._parks = parks
        self._told_memory: dict[int, KvChange] = {}
        self._told_disk: dict[int, KvChange] = {}
        self._told_revision = -1

    def changes(self) -> tuple[KvChange, ...]:
        """The sessions whose KV lies elsewhere, or covers another number of tokens, than when last asked."""
        memory, disk = self._in_memory(), self._on_disk()
        sessions = memory.keys() | self._told_memory.keys()
        if disk is not self._told_disk:  # thousands of artifacts are looked at only where one came or went
            sessions |= disk.keys() | self._told_disk.keys()
        found = []
        for session in sessions:
            place = memory.get(session) or disk.get(session)
            if place != (self._told_memory.get(session) or self._told_disk.get(session)):
                found.append(place or KvChange(session, NOWHERE, 0))
        self._told_memory, self._told_disk = memory, disk
        return tuple(found)

    def _in_memory(self) -> dict[int, KvChange]:
        """For each session with a sequence or a host copy, the better of them, and of equals the longest."""
        places: dict[int, KvChange] = {}
        held = [
            KvChange(slot.session, IN_SEQUENCE, len(slot.tokens))
            for slot in self._slots
            if slot.session is not None and slot.tokens and not slot.ephemeral
        ]
        held += [KvChange(copy.session, IN_HOST, len(copy.tokens)) for copy in self._host]
        for place in held:
            known = places.get(place.session)
            if known is None or (known.tier == place.tier and known.covered < place.covered):
                places[place.session] = place
        return places

    def _on_disk(self) -> dict[int, KvChange]:
        if self._parks is None or self._parks.revision == self._told_revision:
            return self._told_disk
        self._told_revision = self._parks.revision
        return {one.session: KvChange(one.session, ON_DISK, len(one.tokens)) for one in self._parks}
