"""Sessions as plain lists of events, beside the states and heads that the code under test makes of them.

What a daemon does with the pure rooms, without a disk: each verb returns the transaction that a store would be given.
`timelines` is the model: every event of every living session, inherited ones included.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from superfluid.protocol import records
from superfluid.protocol.codes import PurgeMode
from superfluid.protocol.records import Event, EventBody, GenParams
from superfluid.sessions import decide, snapshot
from superfluid.sessions.heads import Head, Heads, Segment, first_head
from superfluid.sessions.rebase import rebase
from superfluid.sessions.state import SessionState, Tail
from superfluid.store.log import Change, Reroot


@dataclass
class Purge:
    """What `SessionLog.purge` takes."""

    purged: list[Change]
    rerooted: list[Reroot]


class World:
    def __init__(self) -> None:
        self.heads = Heads()
        self.states: dict[int, SessionState] = {}
        self.timelines: dict[int, list[Event]] = {}
        self.own: dict[int, dict[int, Event]] = {}
        """what a store holds: records by the session that they were written for, and by id"""
        self.clock = 1_700_000_000_000

    def living(self) -> list[int]:
        return sorted(self.states)

    def copy(self) -> "World":
        """As it stands; a transaction that fails is undone by going back to it."""
        twin = World()
        twin.clock = self.clock
        twin.heads = Heads(self.all_heads())
        twin.states = {session: state.copy() for session, state in self.states.items()}
        twin.timelines = {session: events[:] for session, events in self.timelines.items()}
        twin.own = {session: dict(events) for session, events in self.own.items()}
        return twin

    def all_heads(self) -> tuple[Head, ...]:
        heads = (self.heads.any(session) for session in sorted(self.own))
        return tuple(head for head in heads if head is not None)

    def create(self, parent: int | None = None, params: GenParams = GenParams()) -> Change:  # noqa: B008
        child = SessionState(self.heads.next_id())
        first = Event(0, 1, self._tick(), decide.create(parent, params))
        child.apply(first)
        return self._born(child, [], [first])

    def write(self, session: int, *bodies: EventBody, with_snapshot: bool = False) -> Change:
        state = self.states[session]
        events = []
        for body in bodies:
            epoch = state.epoch + 1 if isinstance(body, records.EpochBump) else state.epoch
            events.append(self._event(state, epoch, body))
            state.apply(events[-1])
        self._keep(session, events)
        head = self.heads.live(session).after(state)
        self.heads.put(head)
        return Change(head, tuple(events), snapshot.dump(state) if with_snapshot else None)

    def fork(self, session: int, at: int, params: GenParams | None = None) -> Change:
        parent = self.states[session]
        body = decide.fork(parent, at, params)
        return self._branch(parent, at, body, lambda child: ())

    def rebase(self, session: int, edits: tuple[records.RebaseEdit, ...]) -> Change:
        parent = self.states[session]
        decide.check_edits(parent, edits)
        at = edits[0].from_
        later = self.timelines[session][at:]
        body = records.Rebased(session, at, parent.params, edits)
        return self._branch(parent, at, body, lambda child: rebase(child, later, edits, self._tick(), StandIn()))

    def trim(self, session: int, to: int) -> Change:
        edits = decide.trim(self.states[session], to)
        return self.rebase(session, edits) if edits else self.fork(session, to)

    def purge(self, session: int, mode: PurgeMode) -> Purge:
        cut = self.heads.children(session) if mode is PurgeMode.REROOT else ()
        gone = (*(self.heads.descendants(session) if mode is PurgeMode.CASCADE else ()), session)
        rerooted = [self._reroot(child, session) for child in cut]
        return Purge([self._tombstone(victim, mode) for victim in gone], rerooted)

    def fold(self, session: int, stop: int | None = None, start: SessionState | None = None) -> SessionState:
        """The session folded from its model, from nothing or from an earlier state of it."""
        head = self.heads.live(session)
        state = start.copy() if start is not None else SessionState(session)
        for event in self.timelines[session][state.events : stop]:
            if event.event_id == head.fork_at > 0:
                state.qos, state.batch_invariant = head.born_qos, head.born_invariant
            state.apply(event)
        return state

    def stored(self, segments: tuple[Segment, ...]) -> list[Event]:
        """What a store would give for `segments`, from `own` alone."""
        return [self.own[s.session][event_id] for s in segments for event_id in range(s.start, s.stop)]

    def _branch(
        self,
        parent: SessionState,
        at: int,
        body: EventBody,
        more: Callable[[SessionState], tuple[Event, ...]],
    ) -> Change:
        child = SessionState(self.heads.next_id())
        inherited = self.timelines[parent.id][:at]
        for event in inherited:
            child.apply(event)
        child.qos, child.batch_invariant = parent.qos, parent.batch_invariant
        first = Event(at, 1, self._tick(), body)
        child.apply(first)
        return self._born(child, inherited, [first, *more(child)])

    def _born(self, child: SessionState, inherited: list[Event], events: list[Event]) -> Change:
        head = first_head(child, events[0].ts_unix_ms)
        self.heads.put(head)
        self.states[child.id] = child
        self.timelines[child.id] = inherited[:]
        self.own[child.id] = {}
        self._keep(child.id, events)
        return Change(head, tuple(events))

    def _keep(self, session: int, events: list[Event]) -> None:
        self.timelines[session] += events
        self.own[session].update({event.event_id: event for event in events})

    def _reroot(self, child: int, parent: int) -> Reroot:
        head, state = self.heads.live(child), self.states[child]
        inherited = self.heads.segments(child, 0, head.own_from)
        front = self.timelines[child][: head.own_from]
        prefix = tuple((event.event_id, bare(event.body)) for event in front)
        event = self._event(state, state.epoch, records.Rerooted(parent, prefix))
        state.apply(event)
        self.own[child].update({event.event_id: event for event in front})
        self._keep(child, [event])
        after = replace(head.after(state), own_from=0)
        self.heads.put(after)
        return Reroot(Change(after, (event,)), inherited)

    def _tombstone(self, session: int, mode: PurgeMode) -> Change:
        state = self.states.pop(session)
        event = self._event(state, state.epoch, records.Purged(state.generation + 1, mode))
        state.apply(event)
        head = self.heads.live(session).after(state).tombstone()
        self.heads.put(head)
        del self.timelines[session]
        self.own[session] = {event.event_id: event}
        return Change(head, (event,))

    def _event(self, state: SessionState, epoch: int, body: EventBody) -> Event:
        return Event(state.events, epoch, self._tick(), body)

    def _tick(self) -> int:
        self.clock += 7
        return self.clock


def bare(body: EventBody) -> EventBody:
    """Inside a prefix, an earlier `Rerooted` does not repeat the front of the same list."""
    return records.Rerooted(body.purged_parent, ()) if isinstance(body, records.Rerooted) else body


class StandIn:
    """A stand-in for the chat template: it shows what it was rendered after."""

    def message_now(self, before: SessionState, role: int, text: str) -> tuple[int, ...]:
        return (9_000 + role, len(before.tokens), len(text))

    def opener(self, before: SessionState) -> tuple[int, ...]:
        return (9_100, len(before.tokens))

    def data_frame(self, before: SessionState) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return ((9_200, len(before.tokens)), (9_201,)) if before.tail is not Tail.DATA else ((), (9_201,))
