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


COMPLETIONS = ("generated", "cached", "expired", "throttled")
"""How a fill-in-the-middle completion is answered, where it is not refused."""


@dataclass(slots=True)
class Metrics:
    """Counters of one daemon. `cold` generations found nothing of their prompt computed; `ttft` is how many first
    tokens fell into each bucket, the last one without bound."""

    ticks: int = 0
    prefill_tokens: int = 0
    decode_tokens: int = 0
    warm_tokens: int = 0
    ingested_tokens: int = 0
    flash_hits: int = 0
    ready_exits: int = 0
    session_turns: int = 0
    session_cached_tokens: int = 0
    warm_turns: int = 0
    warmed_tokens: int = 0
    cold: int = 0
    pressure_events: int = 0
    pins_expired: int = 0
    completions: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COMPLETIONS, 0))
    """by result, one of `COMPLETIONS`"""
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

    def ended(self, warm: int, *, ran: bool) -> None:
        """A generation is over that found `warm` tokens of its prompt computed, where it ran at all."""
        self.warm_tokens += warm
        self.cold += ran and not warm

    def completed(self, result: str) -> None:
        """A completion was answered, with one of `COMPLETIONS`."""
        self.completions[result] += 1


@dataclass(frozen=True, slots=True)
class Now:
    """What is so at this moment; `queue` by `codes.Qos`."""

    lanes_active: int
    queue: Sequence[int]
    respawns: int
    preemptions: int
    starvation_grants: int
    pins_held: int


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
        for name, about, value in self._counters():
            yield CounterMetricFamily(f"superfluid_{name}", about, value)
        completions = CounterMetricFamily(
            "superfluid_fim_completions", "Fill-in-the-middle completions.", labels=["result"]
        )
        for result, count in self.metrics.completions.items():
            completions.add_metric([result], count)
        yield completions
        yield GaugeMetricFamily("superfluid_lanes_active", "Generations that have a lane.", self.now.lanes_active)
        yield GaugeMetricFamily("superfluid_pins_held", "Sessions that are pinned.", self.now.pins_held)
        queue = GaugeMetricFamily("superfluid_queue_depth", "Generations that wait for a lane.", labels=["class"])
        for name, depth in zip(CLASSES, self.now.queue, strict=True):
            queue.add_metric([name], depth)
        yield queue
        ttft = HistogramMetricFamily("superfluid_ttft_seconds", "Seconds from a request to its first token.")
        ttft.add_metric([], list(self._buckets()), self.metrics.ttft_seconds)
        yield ttft
        node = GaugeMetricFamily("superfluid_node_info", "The machine.", labels=["host"])
        node.add_metric([socket.gethostname()], 1)
        yield node

    def _counters(self) -> Iterator[tuple[str, str, int]]:
        counted, now = self.metrics, self.now
        yield "ticks", "Ticks run by the engine worker.", counted.ticks
        yield "prefill_tokens", "Prompt tokens computed.", counted.prefill_tokens
        yield "decode_tokens", "Tokens decoded one by one.", counted.decode_tokens
        yield "warm_prefix_tokens", "Prompt tokens found computed.", counted.warm_tokens
        yield "cold_admissions", "Generations that found nothing of their prompt computed.", counted.cold
        yield "preemptions", "Generations that gave their lane to a better class.", now.preemptions
        yield "starvation_grants", "Generations that got their lane by having waited long.", now.starvation_grants
        yield "os_pressure_events", "Times that KV in host memory gave way.", counted.pressure_events
        yield "pins_expired", "Pins that ran out.", counted.pins_expired
        yield "worker_respawns", "Workers started again.", now.respawns
        yield "session_turns", "Chat turns on sessions that came to their end.", counted.session_turns
        yield "session_cached_tokens", "Prompt tokens that those turns found computed.", counted.session_cached_tokens
        yield "session_warm_turns", "Conversations computed ahead of their turn.", counted.warm_turns
        yield "session_warmed_tokens", "Tokens computed for them.", counted.warmed_tokens
        yield "session_flash_hits", "Questions answered from a flash query.", counted.flash_hits
        yield "session_ready_exits", "Questions answered from the ready position.", counted.ready_exits

    def _buckets(self) -> Iterator[tuple[str, float]]:
        total = 0
        for bound, count in zip((*TTFT_BUCKETS, "+Inf"), self.metrics.ttft, strict=True):
            total += count
            yield str(bound), total
