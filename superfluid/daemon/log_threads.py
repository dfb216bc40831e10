"""The session log as the event loop sees it: whatever it does runs in threads, one that writes and one that reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import trio

from superfluid.protocol.refusals import SessionDamaged, SessionPurged, StoreFailed
from superfluid.store.errors import DamagedRecord, StillThere, StoreError
from superfluid.store.log import Change, Reroot, SessionLog

T = TypeVar("T")


class LogThreads:
    """Raises StoreFailed where the disk would not, SessionDamaged for a record that is not what was written."""

    def __init__(self, log: SessionLog) -> None:
        self._log = log
        self._writing = trio.CapacityLimiter(1)
        self._reading = trio.CapacityLimiter(1)
        self.erasing = False
        """whether something that was erased is still in the write-ahead log"""

    # --- reading --------------------------------------------------------------------------------------------------

    async def ask(self, work: Callable[[SessionLog], T]) -> T:
        """What `work` reads in the log."""
        return await self._run(self._reading, work)

    async def look_up(self, work: Callable[[SessionLog], T]) -> T:
        """As `ask`, of records that `work` finds by the heads."""
        try:
            return await self.ask(work)
        except (SessionDamaged, SessionPurged):
            # Or a purge is under way that has moved or erased records, here or further up: heads follow at its end.
            # One that just follows may be looked at between two heads.
            await self.tell(lambda log: None)
            return await self.ask(work)

    # --- writing --------------------------------------------------------------------------------------------------

    async def tell(self, work: Callable[[SessionLog], None]) -> None:
        """Have `work` write to the log."""
        await self._run(self._writing, work)

    async def commit(self, changes: Sequence[Change]) -> None:
        """All of `changes` in one transaction. Durable when this returns."""

        def commit(log: SessionLog) -> None:
            log.commit(changes)
            if self.erasing:
                try:
                    log.erase_rest()
                    self.erasing = False
                except StoreError:
                    pass  # the next commit tries again

        await self.tell(commit)

    async def purge(self, purged: Sequence[Change], rerooted: Sequence[Reroot]) -> bool:
        """One transaction that erases sessions and cuts living children loose. Durable when this returns; false where
        the write-ahead log could not be emptied as well: `erase_rest` and every commit try again."""

        def purge(log: SessionLog) -> bool:
            try:
                log.purge(purged, rerooted)
                self.erasing = False
            except StillThere:
                self.erasing = True  # here, where whoever purges may have been cancelled
            return not self.erasing

        return await self._run(self._writing, purge)

    async def rewrite(self, work: Callable[[SessionLog], None]) -> None:
        """Have `work` write over what the log says. What was there is in no file after `erase_rest`."""

        def rewrite(log: SessionLog) -> None:
            try:
                work(log)
            finally:
                self.erasing = True

        await self.tell(rewrite)

    async def erase_rest(self) -> None:
        """Empty the write-ahead log of what was erased; where that fails, this and every commit try again."""
        if self.erasing:
            await self.commit(())

    async def _run(self, limiter: trio.CapacityLimiter, work: Callable[[SessionLog], T]) -> T:
        """Run `work` in a thread, one at a time a limiter, and translate what the store may raise."""
        try:
            return await trio.to_thread.run_sync(work, self._log, limiter=limiter)
        except StoreError as fault:
            raise StoreFailed(str(fault)) from fault
        except DamagedRecord as damaged:
            raise SessionDamaged(damaged.session, damaged.event) from damaged
