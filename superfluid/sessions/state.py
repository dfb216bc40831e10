"""The state of one session: everything that its records say, folded.

Rules of this file: `apply` is the only writer, and it never refuses, reads a clock or looks at another session.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field, replace
from enum import IntEnum

from superfluid.protocol import records
from superfluid.protocol.codes import Finish, LedgerState, Qos, Role, ToolOutcomeCode
from superfluid.protocol.records import Event, EventBody, GenParams, span_of
from superfluid.sessions.calls import Call


class Tail(IntEnum):
    """What the last record that put tokens on the input was: it decides how the stream goes on (wire-facts 8.8)."""

    EMPTY = 0
    """nothing on the input yet"""
    RAW = 1
    """an `Appended` or a `Block`: a generation continues it as it stands"""
    TURN = 2
    """a `Message` or a `ToolResult`: the assistant is to answer, so a header comes first"""
    OPEN = 3
    """an assistant turn that is not finished: a generation continues it"""
    FINISHED = 4
    """a reply that drew its end of turn: the separator is due before anything else"""
    DATA = 5
    """a user turn that holds data and has no end yet; its role is the last in `roles`"""


@dataclass(slots=True)
class SessionState:
    """One session, folded. `tokens` is the token stream; ids and lengths count inherited events too."""

    id: int
    parent: int | None = None
    fork_at: int = 0
    params: GenParams = field(default_factory=GenParams)
    created_ms: int = 0
    epoch: int = 0
    events: int = 0
    tokens: array[int] = field(default_factory=lambda: array("I"))
    title: str | None = None
    archived: bool = False
    meta_version: int = 0
    generation: int = 0
    purged: bool = False
    qos: int = Qos.AGENT
    batch_invariant: bool = False
    pin_deadline_ms: int = 0
    fingerprint: int | None = None
    last_finish: int = Finish.OPEN
    tail: Tail = Tail.EMPTY
    roles: list[int] = field(default_factory=list)
    """who spoke, message by message, assistant turns included: the shape that templates see"""
    turn_start: int = 0
    """where in `tokens` the drawn tokens begin that end the stream; its length where none do"""
    calls: dict[int, Call] = field(default_factory=dict)
    permissions: set[int] = field(default_factory=set)
    """permission requests without an answer, by event id"""

    @property
    def open_calls(self) -> tuple[tuple[int, Call], ...]:
        """Tool calls that wait for a result, oldest first."""
        return tuple((call_id, call) for call_id, call in sorted(self.calls.items()) if call.is_open)

    def copy(self) -> SessionState:
        """A state of its own that starts where this one is."""
        return replace(
            self,
            tokens=self.tokens[:],
            roles=self.roles[:],
            calls=self.calls.copy(),
            permissions=self.permissions.copy(),
        )

    def apply(self, event: Event) -> None:
        """Fold one record in. `event.event_id` is the next id; inherited records come with their own ids."""
        if event.event_id != self.events:
            raise ValueError(f"session {self.id}: event {event.event_id} where {self.events} is due")
        if event.event_id == 0:
            self.created_ms = event.ts_unix_ms
        self.events += 1
        self.epoch = event.epoch
        self._apply_body(event.event_id, event.body)

    def _apply_body(self, event_id: int, body: EventBody) -> None:
        match body:
            case records.Created(parent=parent, params=params):
                self.parent, self.params = parent, params
            case records.Forked(parent=parent, fork_at=fork_at, params=params):
                self._begin_timeline(parent, fork_at, params)
            case records.Rebased(parent=parent, fork_at=fork_at, params=params):
                self._begin_timeline(parent, fork_at, params)
            case records.Rerooted():
                self.parent = None
            case records.Purged(generation=generation):
                self.generation, self.purged = generation, True
            case records.MetaUpdated(version=version, title=title, archived=archived):
                self.meta_version = version
                self.title = title if title is not None else self.title
                self.archived = archived if archived is not None else self.archived
            case records.QosSet(class_=qos, batch_invariant=invariant):
                self.qos, self.batch_invariant = qos, invariant
            case records.Pinned(deadline_unix_ms=deadline):
                self.pin_deadline_ms = deadline
            case records.GenerationFingerprint(digest=digest):
                self.fingerprint = digest
            case records.EpochBump() | records.ToolParseFailure():
                pass
            case (
                records.Appended()
                | records.Message()
                | records.GenerationPrompt()
                | records.Generated()
                | records.Block()
            ):
                self._extend(body)
            case records.PermissionRequest():
                self.permissions.add(event_id)
            case records.PermissionResponse(request_id=request_id):
                self.permissions.discard(request_id)
            case _:
                self._apply_call(event_id, body)

    def _begin_timeline(self, parent: int, fork_at: int, params: GenParams) -> None:
        """What came before is inherited input; calls, questions and metadata stay with the parent (8.1)."""
        self.parent, self.fork_at, self.params = parent, fork_at, params
        self.calls, self.permissions = {}, set()
        self.title, self.archived, self.meta_version, self.generation = None, False, 0, 0
        self.pin_deadline_ms = 0

    def _extend(self, body: EventBody) -> None:
        span = span_of(body)
        before = len(self.tokens)
        self.tokens.extend(span)
        if isinstance(body, records.Generated):
            self.last_finish = body.finish
            if span:
                if self.tail in (Tail.TURN, Tail.FINISHED):  # a template without an assistant header
                    self.roles.append(Role.ASSISTANT)
                    self.turn_start = before
                self.tail = Tail.FINISHED if body.finish == Finish.END_OF_TURN else Tail.OPEN
            return
        if not span:
            return
        self.turn_start = len(self.tokens)
        match body:
            case records.GenerationPrompt():
                self.roles.append(Role.ASSISTANT)
                self.tail = Tail.OPEN
            case records.Message(role=role):
                self.roles.append(role)
                self.tail = Tail.TURN
            case records.Block(role=role):
                self.roles.append(role)
                self.tail = Tail.RAW
            case _:
                self.tail = Tail.RAW

    def _apply_call(self, event_id: int, body: EventBody) -> None:
        match body:
            case records.ToolUse(name=name, arguments=arguments):
                self.calls[event_id] = Call(name, arguments)
            case records.ToolResult(call_id=call_id, span=span):
                if span:  # as for other records: what puts nothing on the input leaves its end as it is
                    self.tokens.extend(span)
                    self.turn_start = len(self.tokens)
                    self.roles.append(Role.TOOL)
                    self.tail = Tail.TURN
                self._settle(call_id, LedgerState.SUCCEEDED)
            case records.ToolOutcome(call_id=call_id, outcome=outcome):
                failed = outcome == ToolOutcomeCode.FAILED
                self._settle(call_id, LedgerState.FAILED if failed else LedgerState.CANCELLED)
            case records.ToolExpired(call_id=call_id):
                self._settle(call_id, LedgerState.EXPIRED)
            case records.ToolCancelRequested(call_id=call_id):
                if (call := self.calls.get(call_id)) is not None:
                    self.calls[call_id] = call.cancel_asked()
            case records.ToolReconciliation(call_id=call_id):
                if (call := self.calls.get(call_id)) is not None:
                    self.calls[call_id] = call.late()
            case records.ToolLease(call_id=call_id, deadline_unix_ms=deadline):
                if (call := self.calls.get(call_id)) is not None:
                    self.calls[call_id] = call.leased(deadline)
            case _:
                raise ValueError(f"no rule for {type(body).__name__}")

    def _settle(self, call_id: int, state: LedgerState) -> None:
        # A rebased or inherited result may answer a call of another timeline: then there is nothing to settle.
        if (call := self.calls.get(call_id)) is not None:
            self.calls[call_id] = call.settled(state)
