"""A worker without a model: it obeys ticks by the book, so that schedules can be driven to their end."""

from dataclasses import dataclass, field

from superfluid.protocol.codes import Finish
from superfluid.protocol.records import GenParams
from superfluid.protocol.ticks import LaneOutcome, Outcome, pack
from superfluid.scheduler.job import Job


@dataclass
class Lane:
    prompt: int
    limit: int
    computed: int = 0
    drawn: int = 0


@dataclass
class Worker:
    """Computes `chunk` prompt tokens a round for the first lane that needs some, one draw for every other."""

    lanes: dict = field(default_factory=dict)
    warm: dict = field(default_factory=dict)
    """tokens that come warm, by lane"""
    computed_tokens: int = 0

    def run(self, tick):
        for start in tick.starts:
            assert start.lane not in self.lanes, "a lane was started twice"
            warm = self.warm.get(start.lane, 0)
            self.lanes[start.lane] = Lane(len(start.tokens) // 4, start.limit, computed=warm)
        for lane in tick.ends:
            self.lanes.pop(lane, None)
        before = {lane: self.lanes[lane].drawn for lane in tick.run}
        for _ in range(tick.rounds):
            room = tick.chunk
            for number in tick.run:
                lane = self.lanes[number]
                if lane.drawn == lane.limit:
                    continue
                if lane.computed < lane.prompt:
                    step = min(room, lane.prompt - lane.computed)
                    lane.computed += step
                    self.computed_tokens += step
                    room -= step
                    if lane.computed < lane.prompt:
                        continue
                lane.drawn += 1
        outcomes = []
        for number in tick.run:
            lane = self.lanes[number]
            over = lane.drawn == lane.limit
            outcomes.append(
                LaneOutcome(
                    lane=number,
                    drawn=pack(range(before[number], lane.drawn)),
                    warm=self.warm.get(number, 0),
                    prefilled=0,
                    remaining=lane.prompt - lane.computed,
                    finish=Finish.LENGTH if over else Finish.OPEN,
                    fault=0,
                    detail="",
                )
            )
            if over:
                del self.lanes[number]
        return Outcome(tick.number, tuple(outcomes), tick.rounds, 1000, 0, 0, 0, 1, ())


def job(lane, *, qos=2, prompt=10, limit=4, arrived=0.0, tokens=None, invariant=False):
    """A job whose prompt is its own, or `tokens`."""
    ids = tokens if tokens is not None else [lane * 100_000 + place for place in range(prompt)]
    return Job(
        lane=lane,
        session=lane,
        qos=qos,
        tokens=pack(ids),
        params=GenParams(),
        offset=0,
        limit=limit,
        arrived=arrived,
        batch_invariant=invariant,
    )
