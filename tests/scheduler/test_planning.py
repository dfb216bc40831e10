"""Who runs in which tick: classes, order, age, pauses, shared fronts, slow and invariant lanes."""

import copy

import pytest

from superfluid.protocol.codes import Finish
from superfluid.protocol.refusals import QueueFull
from superfluid.scheduler.job import AGE_SECONDS, QUANTUM_SECONDS
from superfluid.scheduler.planning import INVARIANT_CHUNK, begin, plan, settle
from superfluid.scheduler.schedule import Schedule
from tests.scheduler.worker import Worker, job


class Run:
    """A schedule with its worker, driven tick by tick; a tick takes a quarter of a second."""

    def __init__(self, *jobs, **settings):
        self.schedule = Schedule(**{"lanes": 2, **settings})
        self.worker = Worker()
        self.now = 0.0
        self.ended = {}
        for one in jobs:
            self.schedule.submit(one)

    def tick(self):
        before = copy.deepcopy(self.schedule)
        planned = plan(self.schedule, self.now)
        assert self.schedule == before, "plan wrote"
        if planned is None:
            return None
        begin(self.schedule, planned)
        for settled in settle(self.schedule, self.worker.run(planned.tick)):
            if settled.finish is not Finish.OPEN:
                assert settled.job.lane not in self.ended
                self.ended[settled.job.lane] = settled
        self.now += 0.25
        return planned.tick

    def to_the_end(self, most=500):
        ticks = []
        while (tick := self.tick()) is not None:
            ticks.append(tick)
            assert len(ticks) < most, "it does not end"
        return ticks


def test_first_come_first_served_within_a_class():
    run = Run(*[job(lane, arrived=lane) for lane in (1, 2, 3, 4)])
    assert run.tick().run == (1, 2)
    assert run.tick().run == (3, 4)


def test_a_better_class_goes_first_whenever_it_came():
    run = Run(job(1, qos=3), job(2, qos=2, arrived=1), job(3, qos=0, arrived=2), lanes=1)
    assert [tick.run for tick in run.to_the_end()] == [(3,), (2,), (1,)]


def test_a_newcomer_of_a_better_class_pauses_the_worst_and_nothing_is_repeated():
    run = Run(job(1, qos=3, limit=100), job(2, qos=2, limit=100))
    run.tick()
    newcomer = job(3, qos=0, arrived=run.now)
    assert run.schedule.preempts(newcomer)
    run.schedule.submit(newcomer)
    assert run.tick().run == (3, 2)
    assert [waiting.lane for waiting in run.schedule.waiting] == [1]
    resumed = run.tick()
    assert set(resumed.run) == {1, 2}
    assert resumed.starts == ()
    run.to_the_end()
    assert {lane: settled.job.drawn for lane, settled in run.ended.items()} == {1: 100, 2: 100, 3: 4}


def test_no_pause_within_a_class():
    run = Run(job(1, limit=50), job(2, limit=50))
    run.tick()
    newcomer = job(3, arrived=run.now)
    assert not run.schedule.preempts(newcomer)
    run.schedule.submit(newcomer)
    assert run.tick().run == (1, 2)


def test_age_lets_nobody_starve():
    run = Run(job(1, qos=3, limit=40), lanes=1)
    lane = 2
    while 1 not in run.ended:
        while len(run.schedule.waiting) < 3:
            run.schedule.submit(job(lane, qos=0, limit=8, arrived=run.now))
            lane += 1
        run.tick()
        assert run.now < 20 * AGE_SECONDS, "the background job starves"


def test_who_got_a_lane_by_age_keeps_it_for_a_while():
    run = Run(job(1, qos=3, limit=10_000), lanes=1)
    run.now = AGE_SECONDS + 1
    run.schedule.submit(job(2, qos=2, limit=10_000, arrived=run.now))
    assert run.tick().run == (1,)
    began = run.now
    while run.tick().run == (1,):
        pass
    assert began + QUANTUM_SECONDS - 0.5 <= run.now <= began + QUANTUM_SECONDS + 1


def test_the_shortest_prompt_is_computed_first():
    run = Run(job(1, prompt=3000), job(2, prompt=20, arrived=1))
    run.tick()
    assert run.tick().run[0] == 1 if 2 in run.ended else run.tick().run[0] == 2


def test_class_caps():
    run = Run(*[job(lane, qos=3, limit=64) for lane in (1, 2, 3)], job(4, qos=2), lanes=4, class_lanes={3: 1})
    assert set(run.tick().run) == {1, 4}


def test_slowed_classes_still_run_when_nothing_else_does():
    run = Run(job(1, qos=3, limit=400), job(2, qos=0, limit=64), background_divisor=4)
    ticks = [run.tick() for _ in range(8)]
    assert [1 in tick.run for tick in ticks] == [False, False, False, True, False, False, False, True]
    assert all(2 in tick.run for tick in ticks)
    assert run.tick().run == (1,)


def test_batch_invariant_lanes_tick_alone():
    run = Run(job(1, limit=64), job(2, limit=64, invariant=True), job(3, limit=64), lanes=3)
    for tick in run.to_the_end():
        assert tick.run == (2,) or 2 not in tick.run
    assert set(run.ended) == {1, 2, 3}


def test_the_chunk_of_a_batch_invariant_lane_is_the_same_at_any_speed():
    speeds = (50.0, 400.0, 50_000.0)
    assert {Run(job(1, invariant=True), prefill_rate=speed).tick().chunk for speed in speeds} == {INVARIANT_CHUNK}
    assert len({Run(job(1), prefill_rate=speed).tick().chunk for speed in speeds}) == len(speeds)


def test_a_shared_front_is_computed_once():
    front = list(range(600))
    jobs = [job(lane, tokens=[*front, lane], arrived=lane, limit=40) for lane in range(1, 5)]
    run = Run(*jobs, lanes=4)
    assert run.tick().run == (1,)
    while jobs[0].prefilling:
        assert run.tick().run == (1,)
    for lane in (2, 3, 4):
        run.worker.warm[lane] = 600
    assert set(run.tick().run) >= {2, 3, 4}
    run.to_the_end()
    assert run.worker.computed_tokens == 601 + 3


def test_who_is_awaited_runs_as_the_best_of_those_who_wait():
    front = list(range(600))
    run = Run(job(1, qos=3, tokens=[*front, 1], limit=64), job(2, qos=2, limit=64), lanes=1)
    assert run.tick().run == (2,)
    run.schedule.submit(job(3, qos=0, tokens=[*front, 3], arrived=run.now))
    assert run.tick().run == (1,)


def test_who_is_awaited_is_not_slowed():
    """A chat would wait for a front that is computed once in a million ticks, for as long as others talk."""
    front = list(range(5000))
    slow, chat = job(1, qos=3, tokens=[*front, 1]), job(3, qos=0, tokens=[*front, 3])
    run = Run(slow, lanes=3, background_divisor=1_000_000)
    run.tick()
    run.schedule.submit(job(2, qos=0, limit=2000))
    run.schedule.submit(chat)
    for _ in range(20):
        run.tick()
    assert not slow.prefilling
    assert chat.drawn


def test_who_waits_for_a_front_starts_when_the_other_is_cancelled():
    front = list(range(2000))
    run = Run(job(1, tokens=[*front, 1]), job(2, tokens=[*front, 2], arrived=1))
    assert run.tick().run == (1,)
    run.schedule.cancel(1)
    assert [gone.lane for gone in run.schedule.take_cancelled()] == [1]
    tick = run.tick()
    assert (tick.run, tick.ends) == ((2,), (1,))


def test_a_short_common_front_is_nobodys_business():
    run = Run(job(1, tokens=[*range(200), 1]), job(2, tokens=[*range(200), 2]))
    assert run.tick().run == (1, 2)


def test_the_queue_is_bounded():
    """Two lanes are free, so two jobs do not wait; two more may."""
    run = Run(max_waiting=2)
    for lane in (1, 2, 3, 4):
        run.schedule.submit(job(lane, limit=64))
    with pytest.raises(QueueFull) as caught:
        run.schedule.submit(job(5))
    assert caught.value.retry_after >= 1
    run.tick()
    with pytest.raises(QueueFull):
        run.schedule.submit(job(5))
    run.schedule.cancel(3)
    run.schedule.submit(job(5))


def test_a_place_can_be_reserved():
    run = Run(max_waiting=1, lanes=1)
    with run.schedule.reserve():
        run.schedule.submit(job(1))
        with pytest.raises(QueueFull):
            run.schedule.submit(job(2))
    run.schedule.submit(job(2))


@pytest.mark.parametrize("divisor", [1, 2, 3, 4, 5])
@pytest.mark.parametrize(
    "kinds",
    [
        [(0, True), (2, False)],
        [(0, False), (2, True), (2, True)],
        [(0, False), (2, True), (3, False), (2, True)],
        [(0, True), (0, True), (0, False)],
    ],
    ids=str,
)
def test_nobody_seated_is_left_out_for_ever(divisor, kinds):
    jobs = [job(lane, qos=qos, invariant=alone, limit=100_000) for lane, (qos, alone) in enumerate(kinds)]
    run = Run(*jobs, lanes=len(jobs), background_divisor=divisor)
    shares = dict.fromkeys(range(len(jobs)), 0)
    for _ in range(200):
        for lane in run.tick().run:
            shares[lane] += 1
    assert min(shares.values()) >= 200 // (divisor * len(jobs) + len(jobs))


def test_cancelled_jobs_end_waiting_or_running():
    run = Run(job(1, limit=100), job(2, limit=100), job(3))
    run.tick()
    run.schedule.cancel(1)
    run.schedule.cancel(3)
    assert {gone.lane for gone in run.schedule.take_cancelled()} == {1, 3}
    tick = run.tick()
    assert (tick.run, tick.ends) == ((2,), (1,))


def test_a_lane_is_ended_also_when_nobody_else_runs():
    run = Run(job(1, limit=100))
    run.tick()
    run.schedule.cancel(1)
    run.schedule.take_cancelled()
    tick = run.tick()
    assert (tick.run, tick.ends, tick.rounds) == ((), (1,), 0)
    assert run.tick() is None


def test_a_dead_worker_takes_those_that_had_begun():
    run = Run(job(1, limit=100), job(2, limit=100, qos=3), job(4, qos=3, arrived=9))
    run.tick()
    run.schedule.submit(job(3, qos=0, limit=100, arrived=10))
    run.tick()
    assert {gone.lane for gone in run.schedule.worker_died()} == {1, 2, 3}
    assert [left.lane for left in run.schedule.jobs] == [4]


def test_the_gap_of_the_first_draw_stays_with_the_job():
    from dataclasses import replace

    run = Run(job(1, limit=100))
    for told, known in ((0.0, 0.0), (2.5, 2.5), (2.5, 2.5), (0.0, 2.5)):
        planned = plan(run.schedule, run.now)
        begin(run.schedule, planned)
        outcome = run.worker.run(planned.tick)
        (settled,) = settle(run.schedule, replace(outcome, lanes=(replace(outcome.lanes[0], gap=told),)))
        assert (settled.gap, settled.job.gap) == (known, known)


def test_rates_are_learned_and_the_chunk_follows():
    from dataclasses import replace

    run = Run(job(1, prompt=5000))
    planned = plan(run.schedule, 0.0)
    begin(run.schedule, planned)
    outcome = replace(run.worker.run(planned.tick), prefill_tokens=1000, prefill_us=10_000_000, elapsed_us=10_000_000)
    for _ in range(30):
        settle(run.schedule, outcome)
    assert run.schedule.prefill_rate == pytest.approx(100, rel=0.05)
    assert plan(run.schedule, 1.0).tick.chunk == 64


def test_a_long_prompt_does_not_fill_up_the_round_of_a_better_class():
    run = Run(job(1, qos=3, prompt=3000, limit=8))
    run.tick()
    run.schedule.submit(job(2, qos=0, prompt=20, limit=200, arrived=run.now))
    assert run.tick().run == (2,)
    assert run.tick().run == (2, 1)


def test_a_flood_of_short_prompts_does_not_stop_a_long_one():
    run = Run(job(1, qos=3, prompt=60_000, limit=8))
    run.tick()
    ran = []
    for lane in range(2, 12):
        run.schedule.submit(job(lane, qos=0, prompt=20, limit=1, arrived=run.now))
        ran.append(1 in run.tick().run)
    assert ran == [False, True] * 5


def test_only_prompts_of_a_worse_class_are_given_up_for_a_newcomer():
    run = Run(job(1, qos=2, prompt=60_000, limit=8), job(2, qos=0, prompt=20, limit=200))
    assert not run.schedule.urgent(job(3, qos=0)), "nothing runs yet"
    run.tick()
    run.tick()
    assert run.schedule.urgent(job(3, qos=0))
    assert not run.schedule.urgent(job(3, qos=2))
    run = Run(job(1, qos=2, prompt=20, limit=200))
    run.tick()
    assert not run.schedule.urgent(job(3, qos=0)), "there is no prompt to give up"
