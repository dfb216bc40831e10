"""A rebase: the parent's records with ranges dropped or replaced, as a session of its own (spec: wire-facts, 8.2).

Data, its evictions and rewinds are done again as far as the edits leave something of them: an entry leaves the stream
with the batch that pushed it out, and a rewind goes back to the message it went back to, unless those are gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from superfluid.protocol import records
from superfluid.protocol.codes import Role
from superfluid.protocol.records import Event, EventBody, RebaseEdit, Replace, Span
from superfluid.sessions.state import SessionState, Tail


class Rendering(Protocol):
    """How a message, the header of a reply, and what opens a turn for data are rendered after a state."""

    def message_now(self, before: SessionState, role: int, text: str) -> Span: ...

    def opener(self, before: SessionState) -> Span: ...

    def data_frame(self, before: SessionState) -> tuple[Span, Span]: ...


def rebase(
    child: SessionState,
    later: Sequence[Event],
    edits: tuple[RebaseEdit, ...],
    ts_ms: int,
    render: Rendering,
) -> tuple[Event, ...]:
    """The child's records after its `Rebased`, each applied to `child` on the way.

    `child` holds the kept front and its `Rebased` record; `later` are the parent's events from the first edit on.
    """
    return _Rebase(child, ts_ms, render).run(later, edits)


class _Rebase:
    def __init__(self, child: SessionState, ts_ms: int, render: Rendering) -> None:
        self._child = child
        self._ts_ms = ts_ms
        self._render = render
        self._committed: list[Event] = []
        self._call_ids: dict[int, int] = {}
        self._parent = child.copy()
        """the parent as it was when the record at hand was written, as far as the stream goes"""
        self._reached = [place + 1 for place in range(len(child.said))]
        """for every message of the parent, how many the child had right after it"""
        self._kept = [True] * (len(child.feed.entries) + len(child.feed.detached))
        """for every entry of the parent, oldest first, whether the child has it"""

    def run(self, later: Iterable[Event], edits: tuple[RebaseEdit, ...]) -> tuple[Event, ...]:
        waiting = list(edits)
        gone_until = 0
        for event in later:
            while waiting and waiting[0].from_ == event.event_id:
                edit = waiting.pop(0)
                gone_until = edit.to
                if isinstance(edit, Replace):
                    span = self._render.message_now(self._child, edit.role, edit.text)
                    self._commit(records.Message(edit.role, edit.text, span))
            kept = event.event_id >= gone_until
            if kept:
                self._again(event)
            self._follow(event, kept)
        return tuple(self._committed)

    def _commit(self, body: EventBody) -> int:
        event = Event(self._child.events, self._child.epoch, self._ts_ms, body)
        self._child.apply(event)
        self._committed.append(event)
        return event.event_id

    def _follow(self, event: Event, kept: bool) -> None:
        """The parent's side of a record."""
        body = event.body
        if isinstance(body, records.Ingested | records.Erased):
            batch = records.batch_of(body)
            self._kept = self._kept[_evicted(batch) :] + [kept] * sum(bool(entry.span) for entry in batch.entries)
        self._parent.events = event.event_id
        self._parent.apply(event)
        del self._reached[len(self._parent.said) :]
        while len(self._reached) < len(self._parent.said):
            self._reached.append(len(self._child.said))

    def _again(self, event: Event) -> None:
        """Commit what is left of a record that no edit names."""
        match event.body:
            case records.ToolUse():
                self._call_ids[event.event_id] = self._commit(event.body)
            case records.ToolResult(call_id=call_id, content=content, span=span):
                if call_id in self._call_ids:
                    self._commit(records.ToolResult(self._call_ids[call_id], content, span))
                else:
                    self._commit(records.Message(Role.TOOL, content, span))
            case records.Message(role=role, text=text, span=span):
                self._commit(records.Message(role, text, self._message(role, text) if self._moved(span) else span))
            case records.GenerationPrompt(span=span):
                self._commit(
                    records.GenerationPrompt(self._render.opener(self._child) if self._moved(span) else span)
                )
            case (records.Ingested() | records.Erased()) as body:
                batch = records.batch_of(body)
                gone = sum(self._kept[: _evicted(batch)])
                unseen = sum(not entry.span for entry in batch.entries)
                head = self._head(batch.head) if unseen < len(batch.entries) else ()
                self._commit(replace(body, head=head, evicted=gone + unseen))
            case records.Restored(head=head):
                if self._child.feed.detached:
                    self._commit(records.Restored(self._head(head)))
            case records.Rewound(messages=messages, version=version):
                reached = self._reached[:messages]
                self._commit(records.Rewound(reached[-1] if reached else 0, version))
            case (
                records.Appended()
                | records.Generated()
                | records.ToolParseFailure()
                | records.Block()
                | records.FeedOpened()
            ):
                self._commit(event.body)
            case _:
                pass  # belongs to the parent's own life: metadata, epochs, leases, pins, names, questions

    def _moved(self, span: Span) -> bool:
        """Whether a record with this span came after data in the parent and does not here, or the other way round."""
        return bool(span) and (self._child.tail is Tail.DATA) != (self._parent.tail is Tail.DATA)

    def _message(self, role: int, text: str) -> Span:
        return self._render.message_now(self._child, role, text)

    def _head(self, head: Span) -> Span:
        if self._child.tail is Tail.DATA:
            return ()
        return head if self._parent.tail is not Tail.DATA else self._render.data_frame(self._child)[0]


def _evicted(body: records.Ingested) -> int:
    """How many entries left the stream for a batch, those of its own not counted that never were in it."""
    return max(0, body.evicted - sum(not entry.span for entry in body.entries))
