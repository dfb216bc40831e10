"""When a worker is taken to hang: by what it says while it owes something, on a clock that a test moves."""

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from superfluid.daemon.engine.watchdog import FIRST, Watchdog

PATIENCE = 30.0


class Watched:
    """A worker that hears why it is condemned."""

    def __init__(self):
        self.heard = 0
        self.reasons = []
        self.owes = True

    async def condemn(self, reason):
        await trio.lowlevel.checkpoint()
        self.reasons.append(reason)


class Watch:
    """A watchdog over a worker; it has seen a tick end unless told otherwise."""

    def __init__(self, *, first=False):
        self.clock = MockClock()
        self.worker = Watched()
        self.dog = Watchdog(PATIENCE)
        if not first:
            self.dog.tick_ended()

    def run(self, story):
        async def told():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.dog.watch, self.worker, lambda: self.worker.owes)
                await wait_all_tasks_blocked()
                await story(self)
                nursery.cancel_scope.cancel()

        trio.run(told, clock=self.clock)

    async def pass_time(self, seconds):
        """Time goes by, half a second at a time."""
        for _ in range(round(seconds * 2)):
            self.clock.jump(0.5)
            await wait_all_tasks_blocked()


def test_silence_is_taken_for_death():
    async def story(watch):
        await watch.pass_time(PATIENCE - 1)
        assert not watch.worker.reasons
        await watch.pass_time(3)
        assert watch.worker.reasons == [
            "the engine worker hung: no sign of life for 30 s, so it was killed",
        ]

    Watch().run(story)


def test_any_sign_starts_the_count_anew():
    async def story(watch):
        for _ in range(10):
            await watch.pass_time(PATIENCE - 2)
            watch.worker.heard += 1
        assert not watch.worker.reasons
        await watch.pass_time(PATIENCE + 3)
        assert watch.worker.reasons

    Watch().run(story)


def test_who_owes_nothing_may_be_silent_for_ever():
    async def story(watch):
        watch.worker.owes = False
        await watch.pass_time(3 * PATIENCE)
        watch.worker.owes = True
        await watch.pass_time(PATIENCE - 1)
        assert not watch.worker.reasons
        await watch.pass_time(3)
        assert watch.worker.reasons

    Watch().run(story)


@pytest.mark.parametrize("before", [0, PATIENCE - 2])
def test_a_daemon_that_was_stopped_hears_first_what_was_said_meanwhile(before):
    async def story(watch):
        await watch.pass_time(before)
        watch.clock.jump(10_000)
        await wait_all_tasks_blocked()
        assert not watch.worker.reasons
        watch.worker.heard += 1
        await watch.pass_time(PATIENCE - 2)
        assert not watch.worker.reasons

    Watch().run(story)


def test_the_first_tick_may_take_longer():
    async def story(watch):
        await watch.pass_time(FIRST * PATIENCE - 10)
        assert not watch.worker.reasons
        watch.worker.heard += 1
        watch.dog.tick_ended()
        await watch.pass_time(FIRST * PATIENCE / 30 + PATIENCE + 3)
        assert watch.worker.reasons == ["the engine worker hung: no sign of life for 30 s, so it was killed"]

    Watch(first=True).run(story)
