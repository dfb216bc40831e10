"""When the governor steps down and up, on readings made up for it."""

from itertools import pairwise

import pytest

from superfluid.engine.neighbours import Neighbours, Reading, thread_limit, usable_cores
from superfluid.engine.threads import Adaptive, Fixed, Pace


class Machine:
    """A machine of `cores` cores whose neighbour uses `others` of them, and whose rounds take `round_s`."""

    def __init__(self, cores=2, limit=None, blind=False):
        self.now = 0.0
        self.busy = self.ours = self.daemon = 0.0
        self.others = 0.0
        self.daemon_load = 0.15
        self.blind = blind
        self.cores = cores
        self.history = []
        self.governor = Adaptive(limit or cores, cores, self.read, now=0.0)

    def read(self):
        return None if self.blind else Reading(self.busy, self.ours, self.daemon)

    def run(self, seconds, others=0.0, slow=None):
        """Rounds for `seconds`; `slow` is how long they take with all threads (default: as always)."""
        end = self.now + seconds
        while self.now < end:
            threads = self.governor.threads
            # Those who want a core share what there is.
            wanted = threads + others + self.daemon_load
            share = min(1.0, self.cores / wanted)
            duration = (slow if slow and threads == self.cores else 0.012) * (1 if threads > 1 else 1.4)
            self.now += duration
            self.ours += threads * share * duration
            self.daemon += self.daemon_load * share * duration
            self.busy += wanted * share * duration
            self.governor.after_round(1, duration, self.now)
            self.history.append((self.now, self.governor.threads))
        return self.governor.threads

    def changes(self):
        return sum(before[1] != after[1] for before, after in pairwise(self.history))


def test_alone_all_threads_run():
    machine = Machine()
    assert machine.run(10) == 2
    assert machine.changes() == 0


def test_a_busy_neighbour_takes_a_core_within_a_second_and_gives_it_back_within_five():
    machine = Machine()
    machine.run(3)
    assert machine.run(1.0, others=1.0, slow=0.06) == 1
    assert machine.run(20, others=1.0, slow=0.06) == 1
    assert machine.run(5) == 2
    assert machine.changes() == 2


def test_one_endless_round_is_enough():
    machine = Machine()
    machine.run(3)
    machine.run(0.01, others=1.0, slow=3.0)
    assert machine.governor.threads == 1


def test_short_processes_and_the_daemon_do_not_count():
    machine = Machine()
    for _ in range(10):
        machine.run(0.25, others=0.8)
        machine.run(1.5)
    assert machine.changes() == 0


def test_a_neighbour_that_comes_and_goes_is_not_chased():
    machine = Machine()
    for _ in range(15):
        machine.run(1.0, others=1.0, slow=0.06)
        machine.run(2.0)
    assert machine.changes() <= 20


@pytest.mark.parametrize(("others", "threads"), [(0.0, 8), (1.0, 7), (3.0, 5), (9.0, 1)])
def test_on_more_cores_the_neighbours_get_as_many_as_they_use(others, threads):
    machine = Machine(cores=8)
    machine.daemon_load = 0.0
    machine.run(3)
    if others < 8:
        assert machine.run(10, others=others) == threads
    else:
        # More wants than cores: what others get shrinks with our threads, so the steps down take a while.
        assert machine.run(60, others=others) <= 4


def test_cores_that_others_do_not_need_stay_ours():
    machine = Machine(cores=8, limit=4)
    assert machine.run(10, others=3.0) == 4


def test_one_core_has_nothing_to_decide():
    machine = Machine(cores=1)
    assert machine.run(5, others=1.0) == 1


def test_without_system_times_slow_rounds_decide():
    machine = Machine(blind=True)
    machine.run(3)
    assert machine.run(1.5, others=1.0, slow=0.12) == 1
    assert machine.run(5.5) == 2


def test_a_fixed_number_stays():
    governor = Fixed(3)
    governor.after_round(1, 100.0, 100.0)
    assert governor.threads == 3


def test_pace_learns_per_thread_count_and_size():
    pace = Pace()
    assert not pace.slow(2, 1, 0.01)
    assert not pace.slow(1, 1, 0.1)
    assert not pace.slow(2, 512, 2.0)
    assert not pace.slow(2, 1, 0.02)
    assert pace.slow(2, 1, 0.1)


def test_this_machine_can_be_read():
    reading = Neighbours().read()
    assert reading is None or (reading.busy >= 0 and reading.ours > 0)
    assert 1 <= thread_limit() <= len(usable_cores())
