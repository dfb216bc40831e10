"""A batch as it was decided: what the session is with it, and when that is true no more."""

from __future__ import annotations

from dataclasses import dataclass, replace

import trio

from superfluid.protocol import records
from superfluid.protocol.records import Event, EventBody, Ingested, span_of
from superfluid.sessions.cuts import Cuts
from superfluid.sessions.state import SessionState


@dataclass(slots=True)
class Plan:
    """A batch decided on `state`: `after` is the session with it, `grown` with it and nothing evicted yet."""

    state: SessionState
    body: Ingested
    cuts: Cuts
    """what leaves the stream"""
    grown: SessionState
    after: SessionState
    shifted: bool = False
    """whether what leaves the stream has left the KV"""

    async def still(self, state: SessionState) -> Plan | None:
        """The plan itself, where the session is still what it was made for."""
        await trio.lowlevel.checkpoint()
        return self if _at(self.state) == _at(state) else None


def planned(state: SessionState, body: Ingested) -> Plan:
    """What `body` does to `state`; neither is changed, nor may `state` be for as long as the plan is of use."""
    state = state.copy()
    leaving = body.evicted - sum(not entry.span for entry in body.entries)
    cuts = state.copy().feed.evict(leaving)
    grown = _after(state, replace(body, evicted=body.evicted - leaving))
    return Plan(state, body, cuts, grown, _after(state, body) if leaving else grown)


def changes_input(body: EventBody) -> bool:
    """Whether a record makes plans untrue that were made before it."""
    return bool(span_of(body)) or isinstance(body, records.Rewound | records.Ingested | records.FeedOpened)


def _after(state: SessionState, body: Ingested) -> SessionState:
    after = state.copy()
    after.apply(Event(after.events, after.epoch, 0, body))
    return after


def _at(state: SessionState) -> tuple[object, ...]:
    """What a batch is decided on."""
    return state.ever, len(state.tokens), state.tail, state.feed.version, state.feed.window, bool(state.open_calls)
