"""The state of one session: everything that its records say, folded.

Rules of this file: `apply` is the only writer, and it never refuses, reads a clock or looks at another session.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum

from superfluid.protocol import records
from superfluid.protocol.codes import Channel, Finish, LedgerState, Qos, Role, ToolOutcomeCode
from superfluid.protocol.records import Event, EventBody, GenParams, span_of
from superfluid.sessions.calls import Call
from superfluid.sessions.cuts import Cuts
from superfluid.sessions.feed import FeedState, Flash
from superfluid.sessions.said import Said


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


_HEADERLESS = (Tail.TURN, Tail.FINISHED, Tail.DATA)
"""Where a `Generated` begins an assistant's turn by itself, since its template has no header."""

_COMPLETED = (Finish.END_OF_TURN, Finish.LENGTH, Finish.GRAMMAR)


@dataclass(slots=True)
class SessionState:
    """One session, folded. `tokens` is the token stream, of which evictions and rewinds take parts out again; ids and
    lengths count inherited events too."""

    id: int
    parent: int | None = None
    fork_at: int = 0
    params: GenParams = field(default_factory=GenParams)
    created_ms: int = 0
    epoch: int = 0
    events: int = 0
    tokens: array[int] = field(default_factory=lambda: array("I"))
    ever: int = 0
    """tokens ever put on the input; draws are numbered by it"""
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
    said: list[Said] = field(default_factory=list)
    turns: int = 0
    """generations that came to their end"""
    feed: FeedState = field(default_factory=FeedState)
    calls: dict[int, Call] = field(default_factory=dict)
    permissions: set[int] = field(default_factory=set)
    """permission requests without an answer, by event id"""

    @property
    def open_calls(self) -> tuple[tuple[int, Call], ...]:
        """Tool calls that wait for a result, oldest first."""
        return tuple((call_id, call) for call_id, call in sorted(self.calls.items()) if call.is_open)

    def is_fresh(self, flash: Flash) -> bool:
        """Whether it has an answer, given over just what is on the input now."""
        return flash.value is not None and (flash.version, flash.ever) == (self.feed.version, self.ever)

    def copy(self) -> SessionState:
        """A state of its own that starts where this one is."""
        return replace(
            self,
            tokens=self.tokens[:],
            roles=self.roles[:],
            said=self.said[:],
            feed=self.feed.copy(),
            calls=self.calls.copy(),
            permissions=self.permissions.copy(),
        )

    def become(self, later: SessionState) -> None:
        """Be as `later` is, a copy on which more was applied and that nobody uses any more."""
        for one in fields(self):
            setattr(self, one.name, getattr(later, one.name))

    def apply(self, event: Event) -> None:
        """Fold one record in. `event.event_id` is the next id; inherited records come with their own ids."""
        if event.event_id != self.events:
            raise ValueError(f"session {self.id}: event {event.event_id} where {self.events} is due")
        if event.event_id == 0:
            self.created_ms = event.ts_unix_ms
        self.events += 1
        self.epoch = event.epoch
        self._apply_body(event.event_id, event.body)
        if isinstance(event.body, records.FlashAnswered):
            self._answer_flash(event.body, event.ts_unix_ms)

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
            case records.EpochBump() | records.ToolParseFailure() | records.FlashAnswered():
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
            case records.Ingested() | records.Erased():
                self._ingest(records.batch_of(body))
            case records.Rewound(messages=messages, version=version):
                self.feed.version = version
                self._rewind(messages)
            case records.Restored(head=head):
                self._put_data(head, self.feed.restore())
            case records.Named(name=given):
                self.feed.name = given
            case records.FeedOpened(window=window, pre_decode=pre_decode):
                self.feed.window, self.feed.pre_decode = window, pre_decode
            case records.FlashAdded(id=flash_id, query=query, max_tokens=max_tokens):
                self.feed.flashes[flash_id] = Flash(query, max_tokens)
                self.feed.last_flash = max(self.feed.last_flash, flash_id)
            case records.FlashRemoved(id=flash_id):
                self.feed.flashes.pop(flash_id, None)
            case _:
                self._apply_call(event_id, body)

    def _begin_timeline(self, parent: int, fork_at: int, params: GenParams) -> None:
        """What came before is inherited input; calls, questions and metadata stay with the parent (8.1)."""
        self.parent, self.fork_at, self.params = parent, fork_at, params
        self.calls, self.permissions = {}, set()
        self.title, self.archived, self.meta_version, self.generation = None, False, 0, 0
        self.pin_deadline_ms = 0
        self.feed.begin_timeline()

    # --- the stream -----------------------------------------------------------------------------------------------

    def _extend(self, body: EventBody) -> None:
        span = span_of(body)
        before = len(self.tokens)
        self._put(span)
        if isinstance(body, records.Generated):
            self._draw(body, before)
            return
        if not span:
            return
        self.turn_start = len(self.tokens)
        match body:
            case records.GenerationPrompt():
                self._speak(Role.ASSISTANT, "", before, Tail.OPEN)
            case records.Message(role=role, text=text):
                self._speak(role, text, before, Tail.TURN)
            case records.Block(role=role):
                self._join(role)
                self.tail = Tail.RAW
            case _:
                self.tail = Tail.RAW

    def _put(self, span: Sequence[int]) -> None:
        self.tokens.extend(span)
        self.ever += len(span)

    def _draw(self, body: records.Generated, before: int) -> None:
        self.last_finish = body.finish
        self.turns += body.finish in _COMPLETED
        text = body.text if body.channel == Channel.TEXT else ""
        if body.span:
            tail = Tail.FINISHED if body.finish == Finish.END_OF_TURN else Tail.OPEN
            if self.tail in _HEADERLESS:
                self.turn_start = before
                self._speak(Role.ASSISTANT, text, before, tail)
                return
            self.tail = tail
        # What continues raw tokens, or a turn with raw tokens in it, is no message.
        if self.said and self.said[-1].role == Role.ASSISTANT and self.said[-1].end == before:
            last = self.said[-1]
            self.said[-1] = replace(last, text=last.text + text, end=len(self.tokens), tail=self.tail)

    def _speak(self, role: int, text: str, start: int, tail: Tail) -> None:
        """A message was put on the input; a user's text that follows data goes into the turn that holds them."""
        self._join(role)
        self.tail = tail
        self.said.append(Said(role, text, start, len(self.tokens), len(self.roles), tail, self.turn_start))

    def _join(self, role: int) -> None:
        if not (self.tail is Tail.DATA and role == Role.USER):
            self.roles.append(role)

    def _ingest(self, body: records.Ingested) -> None:
        feed = self.feed
        feed.version = body.version
        feed.dropped += body.dropped
        unseen = sum(not entry.span for entry in body.entries)
        held = len(feed.entries) + len(feed.detached)
        # A rebase may have left out some of what this batch evicted.
        feed.evicted += unseen + max(0, min(body.evicted - unseen, held))
        self._take_out(feed.evict(body.evicted - unseen))
        feed.number(unseen, len(body.entries) - unseen)
        self._put_data(body.head, [entry.span for entry in body.entries if entry.span])

    def _put_data(self, head: Sequence[int], entries: Sequence[Sequence[int]]) -> None:
        if not head and not entries:
            return
        self._join(Role.USER)
        self._put(head)
        for entry in entries:
            self.feed.put(len(self.tokens), len(entry))
            self._put(entry)
        self.turn_start = len(self.tokens)
        self.tail = Tail.DATA

    def _take_out(self, cuts: Cuts) -> None:
        if cuts.ranges:
            self.tokens = cuts.applied(self.tokens)
            self.turn_start = cuts.moved(self.turn_start)
            self.said = [message.moved(cuts) for message in self.said]
            self.feed.move(cuts.moved)

    def _rewind(self, messages: int) -> None:
        last = self.said[min(messages, len(self.said)) - 1] if messages and self.said else None
        cut = last.end if last is not None else 0
        self.feed.detach(cut, self.tokens)
        del self.tokens[cut:]
        del self.said[messages:]
        del self.roles[last.roles if last is not None else 0 :]
        self.tail = Tail(last.tail) if last is not None else Tail.EMPTY
        self.turn_start = last.turn_start if last is not None else 0

    def _answer_flash(self, body: records.FlashAnswered, now_ms: int) -> None:
        if (flash := self.feed.flashes.get(body.id)) is not None:
            self.feed.flashes[body.id] = replace(
                flash,
                value=body.value,
                version=body.data_version,
                confidence=body.confidence,
                answered_ms=now_ms,
                ever=self.ever,
            )

    # --- calls ----------------------------------------------------------------------------------------------------

    def _apply_call(self, event_id: int, body: EventBody) -> None:
        match body:
            case records.ToolUse(name=name, arguments=arguments):
                self.calls[event_id] = Call(name, arguments)
                if self.said:
                    self.said[-1] = self.said[-1].called(name, arguments)
            case records.ToolResult(call_id=call_id, content=content, span=span):
                if span:  # as for other records: what puts nothing on the input leaves its end as it is
                    before = len(self.tokens)
                    self._put(span)
                    self.turn_start = len(self.tokens)
                    self._speak(Role.TOOL, content, before, Tail.TURN)
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
