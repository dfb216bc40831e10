"""Random schedules: whatever comes, lanes are never oversold and every job ends exactly once."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from superfluid.protocol.codes import Finish
from superfluid.scheduler.planning import begin, plan, settle
from superfluid.scheduler.schedule import Schedule
from tests.scheduler.worker import Worker, job

FRONT = list(range(300))


class Machine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.schedule = Schedule(lanes=3, class_lanes={3: 2})
        self.worker = Worker()
        self.now = 0.0
        self.known = set()
        self.ended = set()

    def end(self, lane):
        assert lane not in self.ended, "it ended twice"
        self.ended.add(lane)

    @rule(
        qos=st.integers(0, 3),
        prompt=st.integers(1, 700),
        limit=st.integers(1, 40),
        shares=st.booleans(),
        invariant=st.booleans(),
    )
    def submit(self, qos, prompt, limit, shares, invariant):
        lane = len(self.known) + 1
        tokens = [*FRONT, lane] if shares else None
        self.schedule.submit(
            job(lane, qos=qos, prompt=prompt, limit=limit, arrived=self.now, tokens=tokens, invariant=invariant)
        )
        self.known.add(lane)

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def cancel(self, data):
        self.schedule.cancel(data.draw(st.sampled_from(sorted(self.known))))

    @rule(divisor=st.sampled_from([1, 1, 1, 5]))
    def slow(self, divisor):
        self.schedule.background_divisor = divisor

    @rule(seconds=st.floats(0, 30))
    def wait(self, seconds):
        self.now += seconds

    @rule()
    def die(self):
        for gone in self.schedule.worker_died():
            self.end(gone.lane)
        self.worker = Worker()

    @rule()
    def tick(self):
        for gone in self.schedule.take_cancelled():
            self.end(gone.lane)
        planned = plan(self.schedule, self.now)
        if planned is None:
            assert not self.schedule.jobs
            return
        tick = planned.tick
        assert len(tick.run) <= 3
        assert len(set(tick.run)) == len(tick.run)
        begin(self.schedule, planned)
        for settled in settle(self.schedule, self.worker.run(tick)):
            if settled.finish is not Finish.OPEN:
                self.end(settled.job.lane)

    @invariant()
    def nothing_is_lost(self):
        under_way = [one.lane for one in self.schedule.jobs]
        assert len(under_way) == len(set(under_way))
        assert set(under_way) | self.ended == self.known
        assert not set(under_way) & self.ended
        assert len(self.schedule.running) <= 3
        started = {one.lane for one in self.schedule.jobs if one.started}
        assert set(self.worker.lanes) <= started | set(self.schedule.leaving)

    def teardown(self):
        self.schedule.background_divisor = 1
        for _ in range(2000):
            if not self.schedule.jobs and not self.schedule.leaving:
                break
            self.tick()
            self.now += 0.25
        assert not self.schedule.jobs, "jobs that never end"
        assert not self.worker.lanes, "lanes that nobody ended"


Machine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestSchedules = Machine.TestCase
