"""A rebase: the parent's records with ranges dropped or replaced, as a session of its own (spec: wire-facts, 8.2)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from superfluid.protocol import records
from superfluid.protocol.codes import Role
from superfluid.protocol.records import Event, EventBody, RebaseEdit, Replace, Span
from superfluid.sessions.state import SessionState

Render = Callable[[SessionState, Replace], Span]
"""The span of a replacing message, rendered after what the child holds so far."""


def rebase(
    child: SessionState,
    later: Iterable[Event],
    edits: tuple[RebaseEdit, ...],
    ts_ms: int,
    render: Render,
) -> tuple[Event, ...]:
    """The child's records after its `Rebased`, each applied to `child` on the way.

    `child` holds the kept front and its `Rebased` record; `later` are the parent's events from the first edit on.
    """
    committed: list[Event] = []
    call_ids: dict[int, int] = {}

    def commit(body: EventBody) -> int:
        event = Event(child.events, child.epoch, ts_ms, body)
        child.apply(event)
        committed.append(event)
        return event.event_id

    waiting = list(edits)
    gone_until = 0
    for event in later:
        while waiting and waiting[0].from_ == event.event_id:
            edit = waiting.pop(0)
            gone_until = edit.to
            if isinstance(edit, Replace):
                commit(records.Message(edit.role, edit.text, render(child, edit)))
        if event.event_id < gone_until:
            continue
        match event.body:
            case records.ToolUse():
                call_ids[event.event_id] = commit(event.body)
            case records.ToolResult(call_id=call_id, content=content, span=span):
                if call_id in call_ids:
                    commit(records.ToolResult(call_ids[call_id], content, span))
                else:
                    commit(records.Message(Role.TOOL, content, span))
            case (
                records.Appended()
                | records.Message()
                | records.GenerationPrompt()
                | records.Generated()
                | records.ToolParseFailure()
                | records.Block()
            ):
                commit(event.body)
            case _:
                pass  # belongs to the parent's own life: metadata, epochs, leases, pins, questions
    return tuple(committed)
