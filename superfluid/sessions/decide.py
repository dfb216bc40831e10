"""The rules: (state, request) to the bodies of records, or a refusal. Nothing is written here.

Spans arrive rendered, since rendering needs the model. Order of checks and texts: wire-facts, section 8.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from superfluid.protocol.codes import Role
from superfluid.protocol.records import (
    Appended,
    Created,
    Drop,
    Event,
    EventBody,
    Forked,
    GenParams,
    Message,
    MetaUpdated,
    Pinned,
    QosSet,
    RebaseEdit,
    Replace,
    Rerooted,
    Span,
)
from superfluid.protocol.refusals import (
    BadEdits,
    BadPoint,
    BadRole,
    MetaConflict,
    ProtocolRefusal,
    PurgeConflict,
    SystemTooLate,
)
from superfluid.protocol.wire import U64_MAX, single
from superfluid.sessions.state import SessionState

CLIENT_ROLES = (Role.SYSTEM, Role.USER, Role.ASSISTANT)


def check_params(params: GenParams) -> GenParams:
    """`params`, fit to sample with and as the log will give them back. The original draws from NaN."""
    fit = replace(
        params, temperature=single(params.temperature), top_p=single(params.top_p), min_p=single(params.min_p)
    )
    if not (math.isfinite(fit.temperature) and fit.temperature >= 0):
        raise ProtocolRefusal(f"params.temperature is {params.temperature}; it must be a number, 0 (greedy) or more")
    for name, value in (("top_p", params.top_p), ("min_p", params.min_p)):
        if not 0 <= value <= 1:
            raise ProtocolRefusal(f"params.{name} is {value}; it must be from 0 to 1")
    return fit


def create(parent: int | None, params: GenParams) -> EventBody:
    return Created(parent, check_params(params))


def append(text: str | None, span: Span, rendered: Span) -> EventBody:
    """A raw append: `span` as given, else `rendered`, the tokens of `text` (8.3)."""
    if span:
        return Appended(text, span)
    if text is None:
        raise ProtocolRefusal("append had neither text nor span")
    if not rendered:
        raise ProtocolRefusal("append: the text has no tokens")
    return Appended(text, rendered)


def check_role(role: int) -> Role:
    """A role that a client may append (8.4). Raises BadRole."""
    if role not in CLIENT_ROLES:
        raise BadRole(role)
    return Role(role)


def message(role: int, text: str, rendered: Span) -> EventBody:
    known = check_role(role)
    if not rendered:
        raise ProtocolRefusal("the model's chat template renders nothing for this message")
    return Message(known, text, rendered)


def check_system_request(text: str | None, tools: tuple[str, ...]) -> None:
    """The first check of AppendSystem, before its tools are read (8.5)."""
    if text is None and not tools:
        raise ProtocolRefusal("AppendSystem had neither text nor tools")


def check_system(state: SessionState) -> None:
    """AppendSystem comes before any input, inherited input included (8.5). Raises SystemTooLate."""
    if state.tokens:
        raise SystemTooLate(state.id)


def fork(state: SessionState, at_event: int, params: GenParams | None) -> Forked:
    """The first own record of a fork that keeps events 0 to `at_event - 1` (8.1)."""
    if not 1 <= at_event <= state.events:
        raise BadPoint(state.id, at_event, state.events)
    return Forked(state.id, at_event, check_params(params) if params is not None else state.params)


def check_edits(state: SessionState, edits: tuple[RebaseEdit, ...]) -> None:
    """Ranges half-open, sorted, apart, within the log, never event 0; roles known (8.2). Raises BadEdits, BadRole."""
    if not edits:
        raise BadEdits("no edits")
    previous = 0
    for edit in edits:
        if edit.from_ == 0:
            raise BadEdits("edits never include Created, event 0")
        if edit.from_ >= edit.to:
            raise BadEdits(f"empty range {edit.from_}..{edit.to}")
        if edit.to > state.events:
            raise BadEdits(f"{edit.to} is beyond the parent's committed events, of which there are {state.events}")
        if edit.from_ < previous:
            raise BadEdits("edits must be sorted and non-overlapping")
        if isinstance(edit, Replace):
            check_role(edit.role)
        previous = edit.to


def trim(state: SessionState, to_event: int) -> tuple[RebaseEdit, ...]:
    """The edits that leave events 0 to `to_event - 1`; none where that is all of them, a plain fork (8.1)."""
    if not 1 <= to_event <= state.events:
        raise BadPoint(state.id, to_event, state.events)
    return () if to_event == state.events else (Drop(to_event, state.events),)


def set_meta(state: SessionState, expected_version: int, title: str | None, archived: bool | None) -> MetaUpdated:
    if expected_version != state.meta_version:
        raise MetaConflict(state.id, state.meta_version, expected_version)
    return MetaUpdated(expected_version + 1, title, archived)


def set_qos(class_: int, batch_invariant: bool) -> QosSet:
    if class_ > 3:
        raise ProtocolRefusal(f"unknown QoS class {class_}; 0 interactive, 1 completion, 2 agent, 3 background")
    return QosSet(class_, batch_invariant)


def pin(ttl_ms: int, now_ms: int) -> Pinned:
    """A deadline, saturating; a time to live of 0 clears (8.14)."""
    return Pinned(min(now_ms + ttl_ms, U64_MAX) if ttl_ms else 0)


def check_purge(generation: int, session: int, expected: int) -> None:
    if expected != generation:
        raise PurgeConflict(session, generation, expected)


def reroot(purged_parent: int, inherited: Iterable[Event]) -> Rerooted:
    """The record that hands a child what it had inherited (8.13). An earlier `Rerooted` in it stays bare: its own
    prefix is the front of the same list."""
    prefix = tuple(
        (event.event_id, Rerooted(event.body.purged_parent, ()) if isinstance(event.body, Rerooted) else event.body)
        for event in inherited
    )
    return Rerooted(purged_parent, prefix)
