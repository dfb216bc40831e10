"""Random schedules against what is promised of each tick: plan reads only, order, full lanes, nothing drawn twice."""

import copy
from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from superfluid.protocol.codes import Finish
from superfluid.scheduler.planning import begin, plan, settle
from superfluid.scheduler.schedule import Schedule
from tests.scheduler.worker import Worker, job

LANES = 3


class Promises(RuleBasedStateMachine):
    """No caps, no shared fronts and little time: then the order of service is class, those that run, arrival."""

    def __init__(self):
        super().__init__()
        self.schedule = Schedule(lanes=LANES)
        self.worker = Worker()
        self.now = 0.0
        self.jobs = {}
        self.drawn = {}
        self.ended = {}
        self.cancelled = set()

    @rule(qos=st.integers(0, 3), prompt=st.integers(1, 400), limit=st.integers(1, 40), at_once=st.booleans())
    def submit(self, qos, prompt, limit, at_once):
        lane = len(self.jobs) + 1
        self.now += 0 if at_once else 0.001
        newcomer = job(lane, qos=qos, prompt=prompt, limit=limit, arrived=self.now)
        preempts = self.schedule.preempts(newcomer)
        running = list(self.schedule.running.values())
        self.schedule.submit(newcomer)
        self.jobs[lane] = newcomer
        self.drawn[lane] = []
        tick = plan(self.schedule, self.now).tick
        if running and lane in tick.run and not self.cancelled - set(self.ended):
            assert preempts, "it would run in the next tick, so the one under way is to end"

    @precondition(lambda self: self.jobs)
    @rule(data=st.data())
    def cancel(self, data):
        lane = data.draw(st.sampled_from(sorted(self.jobs)))
        self.schedule.cancel(lane)
        if lane not in self.ended:
            self.cancelled.add(lane)

    @rule()
    def cancel_somebody_unknown(self):
        self.schedule.cancel(10_000)

    @rule()
    def die(self):
        not_begun = [one for one in self.schedule.jobs if not one.started]
        gone = self.schedule.worker_died()
        assert [one for one in gone if not one.started] == []
        assert sorted(one.lane for one in self.schedule.waiting) == sorted(one.lane for one in not_begun)
        assert (self.schedule.running, self.schedule.leaving) == ({}, [])
        for one in gone:
            self.end(one.lane, Finish.ERROR)
        self.worker = Worker()

    def end(self, lane, finish):
        assert lane not in self.ended
        self.ended[lane] = finish

    @rule(faulty=st.integers(0, 30), late=st.booleans())
    def tick(self, faulty, late):
        gone = [one.lane for one in self.schedule.take_cancelled()]
        assert set(gone) == self.cancelled - set(self.ended)
        for lane in gone:
            self.end(lane, Finish.CANCELLED)

        before = copy.deepcopy(self.schedule)
        planned = plan(self.schedule, self.now)
        assert plan(self.schedule, self.now) == planned
        assert self.schedule == before, "plan wrote"

        under_way = self.schedule.jobs
        if planned is None:
            assert under_way == ()
            return
        tick = planned.tick
        ran_before = set(self.schedule.running)
        in_order = sorted(under_way, key=lambda one: (one.qos, one.lane not in ran_before, one.arrived, one.lane))
        seated = in_order[:LANES]
        held = [one for one in seated if one.lane not in tick.run]
        assert set(tick.run) == {one.lane for one in seated if one not in held}
        for one in held:
            better = [other for other in seated if other.prefilling and other.qos < one.qos and other not in held]
            assert better
            assert one.prefilling
            assert one.to_compute > tick.chunk
            assert one.ran == tick.number - 1, "held back twice in a row"
        assert [start.lane for start in tick.starts if self.jobs[start.lane].started] == []
        assert {start.lane for start in tick.starts} == {lane for lane in tick.run if not self.jobs[lane].started}
        assert not set(tick.ends) & set(tick.run)

        begin(self.schedule, planned)
        assert set(self.schedule.running) == {*tick.run, *(one.lane for one in held if one.started)}
        if late and tick.run:
            self.cancel_running(tick.run[0])
        outcome = self.worker.run(tick)
        outcome = replace(outcome, lanes=tuple(self.spoiled(lane, faulty) for lane in outcome.lanes))
        for settled in settle(self.schedule, outcome):
            self.drawn[settled.job.lane] += settled.drawn
            if settled.finish is not Finish.OPEN:
                self.end(settled.job.lane, settled.finish)
        assert settle(self.schedule, replace(outcome, lanes=self.of_ended(outcome.lanes))) == ()

    def cancel_running(self, lane):
        self.schedule.cancel(lane)
        self.cancelled.add(lane)

    def spoiled(self, lane, faulty):
        if lane.lane == faulty and lane.finish == Finish.OPEN:
            self.worker.lanes.pop(lane.lane)
            return replace(lane, finish=Finish.ERROR, fault=4, detail="no room")
        return lane

    def of_ended(self, lanes):
        return tuple(lane for lane in lanes if lane.lane in self.ended)

    @invariant()
    def what_is_drawn_is_handed_over_once_and_in_order(self):
        for lane, drawn in self.drawn.items():
            assert drawn == list(range(len(drawn)))
            assert self.jobs[lane].drawn == len(drawn) <= self.jobs[lane].limit
            if self.ended.get(lane) is Finish.LENGTH:
                assert len(drawn) == self.jobs[lane].limit

    @invariant()
    def every_job_is_in_one_place(self):
        waiting, running = [one.lane for one in self.schedule.waiting], list(self.schedule.running)
        assert sorted([*waiting, *running, *self.ended]) == sorted(self.jobs)
        assert len(running) <= LANES
        assert sum(self.schedule.queue_by_class()) == len(waiting)
        assert len(self.schedule.leaving) == len(set(self.schedule.leaving))
        assert not set(self.schedule.leaving) & {one.lane for one in self.schedule.jobs}

    def teardown(self):
        for _ in range(500):
            if not self.schedule.jobs and not self.schedule.leaving:
                break
            self.tick(0, False)
        assert sorted(self.ended) == sorted(self.jobs)
        assert self.worker.lanes == {}


def test_who_waits_behind_a_newcomer_does_not_take_its_lane():
    schedule, worker = Schedule(lanes=3), Worker()
    schedule.submit(job(1, qos=2, limit=100))
    planned = plan(schedule, 0.0)
    begin(schedule, planned)
    settle(schedule, worker.run(planned.tick))
    schedule.submit(job(2, qos=3))
    schedule.submit(job(3, qos=3))
    newcomer = job(4, qos=2)
    assert schedule.preempts(newcomer)
    schedule.submit(newcomer)
    assert schedule.preempts(newcomer)
    assert plan(schedule, 0.1).tick.run == (1, 4, 2)


Promises.TestCase.settings = settings(max_examples=80, stateful_step_count=40)
TestPromises = Promises.TestCase
