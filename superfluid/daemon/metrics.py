"""What the daemon has done since its start, in numbers; as Prometheus text on demand (spec: wire-facts, 8.17).

The engine room and its generations count here; what is a matter of now (lanes, queue) is read when somebody asks.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from superfluid.protocol.ticks import Outcome

TTFT_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0)
"""Upper bounds, in seconds, of the buckets for the time to the first token."""

CLASSES = ("interactive_chat", "inline_completion", "foreground_agent", "background_agent")
"""Names of the scheduling classes, by `codes.Qos`."""


@dataclass(slots=True)
class Metrics:
    """Counters of one daemon. `ttft` is how many first tokens fell into each bucket, the last one without bound."""

    ticks: int = 0
    prefill_tokens: int = 0
    decode_tokens: int = 0
    warm_tokens: int = 0
    flash_hits: int = 0
    ready_exits: int = 0
    session_turns: int = 0
    warm_turns: int = 0
    warmed_tokens: int = 0
    ttft: list[int] = field(default_factory=lambda: [0] * (len(TTFT_BUCKETS) + 1))
    ttft_seconds: float = 0.0

    def tick(self, outcome: Outcome) -> None:
        """A tick is over."""
        self.ticks += 1
        self.prefill_tokens += outcome.prefill_tokens
        self.decode_tokens += outcome.decode_tokens

    def first_token(self, seconds: float) -> None:
        """A generation drew its first token, so long after it was asked for."""
        self.ttft_seconds += seconds
        self.ttft[sum(seconds > bound for bound in TTFT_BUCKETS)] += 1

    def ended(self, warm: int) -> None:
        """A generation is over that found `warm` tokens of its prompt computed."""
        self.warm_tokens += warm


@dataclass(frozen=True, slots=True)
class Now:
    """What is so at this moment; `queue` by `codes.Qos`."""

    lanes_active: int
    queue: Sequence[int]
    respawns: int


def prometheus(metrics: Metrics, now: Now) -> bytes:
    """The metrics in Prometheus' text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Reading(metrics, now))
    return generate_latest(registry)


@dataclass(frozen=True, eq=False)
class _Reading(Collector):
    metrics: Metrics
    now: Now

    def collect(self) -> Iterable[Metric]:
        counted = self.metrics
        yield CounterMetricFamily("superfluid_ticks", "Ticks run by the engine worker.", counted.ticks)
        yield CounterMetricFamily("superfluid_prefill_tokens", "Prompt tokens computed.", counted.prefill_tokens)
        yield CounterMetricFamily("superfluid_decode_tokens", "Tokens decoded one by one.", counted.decode_tokens)
        yield CounterMetricFamily(
            "superfluid_warm_prefix_tokens", "Prompt tokens found computed.", counted.warm_tokens
        )
        yield CounterMetricFamily("superfluid_worker_respawns", "Workers started again.", self.now.respawns)
        yield GaugeMetricFamily("superfluid_lanes_active", "Generations that have a lane.", self.now.lanes_active)
        queue = GaugeMetricFamily("superfluid_queue_depth", "Generations that wait for a lane.", labels=["class"])
        for name, depth in zip(CLASSES, self.now.queue, strict=True):
            queue.add_metric([name], depth)
        yield queue
        ttft = HistogramMetricFamily("superfluid_ttft_seconds", "Seconds from a request to its first token.")
        ttft.add_metric([], list(self._buckets()), counted.ttft_seconds)
        yield ttft
        node = GaugeMetricFamily("superfluid_node_info", "The machine.", labels=["host"])
        node.add_metric([socket.gethostname()], 1)
        yield node

    def _buckets(self) -> Iterator[tuple[str, float]]:
        total = 0
        for bound, count in zip((*TTFT_BUCKETS, "+Inf"), self.metrics.ttft, strict=True):
            total += count
            yield str(bound), total
