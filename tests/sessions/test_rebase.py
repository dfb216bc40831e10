"""Rebases: what is committed again, under which ids, and what stays with the parent (wire-facts 8.2)."""

from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st

from superfluid.protocol import records
from superfluid.protocol.codes import LedgerState, Role
from superfluid.protocol.records import Drop, Replace, span_of
from superfluid.sessions.state import Tail
from tests.sessions.bodies import batches, bodies, edits
from tests.sessions.reference import Reference
from tests.sessions.world import World

COPIED = (
    records.Appended,
    records.Message,
    records.GenerationPrompt,
    records.Generated,
    records.ToolParseFailure,
    records.Block,
)


def history(*written):
    world = World()
    session = world.create().head.id
    world.write(session, *written)
    return world, session


def own_bodies(world, change):
    return [event.body for event in change.events[1:]]


def test_what_is_copied_and_what_is_dropped():
    kept = [
        records.Appended("a", (1,)),
        records.Message(Role.USER, "u", (2,)),
        records.GenerationPrompt((3,)),
        records.Generated((4,), "g", 0, 1),
        records.ToolParseFailure("raw"),
        records.Block(Role.USER, 7, "{}", (5, 5), 2),
    ]
    left = [
        records.EpochBump(),
        records.GenerationFingerprint(1),
        records.MetaUpdated(1, "t", None),
        records.ToolExpired(1, "r"),
        records.QosSet(1, True),
        records.PermissionRequest(0, "p"),
        records.PermissionResponse(9, True),
        records.ToolCancelRequested(1),
        records.ToolOutcome(1, 1, "n"),
        records.ToolReconciliation(1, "n"),
        records.ToolLease(1, 5),
        records.Pinned(5),
    ]
    mixed = [body for pair in zip(left, kept + kept, strict=True) for body in pair]
    world, session = history(records.Message(Role.USER, "gone", (9,)), *mixed)
    change = world.rebase(session, (Drop(1, 2),))
    assert own_bodies(world, change) == kept + kept
    assert [event.event_id for event in change.events] == list(range(1, 2 + len(kept) * 2))
    assert change.head.fork_at == change.head.own_from == 1


def test_records_of_the_tree_are_dropped():
    world, session = history(records.Appended(None, (1,)), records.Appended(None, (2,)))
    child = world.fork(session, 2).head.id
    world.write(child, records.Appended(None, (3,)))
    grandchild = world.rebase(child, (Drop(1, 2),))
    assert own_bodies(world, grandchild) == [records.Appended(None, (3,))]
    again = world.rebase(grandchild.head.id, (Replace(1, 2, Role.USER, "x"),))
    assert own_bodies(world, again)[1:] == [records.Appended(None, (3,))]


def test_calls_get_new_ids_and_orphans_become_messages():
    world, session = history(
        records.ToolUse("kept in front", "{}"),  # 1
        records.Message(Role.USER, "gone", (1,)),  # 2
        records.ToolResult(1, "of the front", (2,)),  # 3
        records.ToolUse("moves", "{}"),  # 4
        records.ToolResult(4, "moves too", (3,)),  # 5
        records.ToolUse("gone", "{}"),  # 6
        records.ToolResult(6, "orphan", (4,)),  # 7
        records.ToolUse("loses its result", "{}"),  # 8
        records.ToolResult(8, "gone", (5,)),  # 9
    )
    change = world.rebase(session, (Drop(2, 3), Drop(6, 7), Drop(9, 10)))
    assert own_bodies(world, change) == [
        records.Message(Role.TOOL, "of the front", (2,)),  # 3
        records.ToolUse("moves", "{}"),  # 4
        records.ToolResult(4, "moves too", (3,)),  # 5
        records.Message(Role.TOOL, "orphan", (4,)),  # 6
        records.ToolUse("loses its result", "{}"),  # 7
    ]
    child = world.states[change.head.id]
    assert {call_id: call.state for call_id, call in child.calls.items()} == {
        4: LedgerState.SUCCEEDED,
        7: LedgerState.OPEN,
    }
    assert change.head.open_calls == 1


def test_new_ids_that_equal_old_ones_are_not_confused():
    world, session = history(
        records.Message(Role.USER, "gone", (1,)),  # 1
        records.Message(Role.USER, "gone", (1,)),  # 2
        records.ToolUse("a", "{}"),  # 3, becomes 2
        records.ToolUse("b", "{}"),  # 4, becomes 3
        records.ToolResult(3, "ra", (2,)),
        records.ToolResult(4, "rb", (3,)),
    )
    change = world.rebase(session, (Drop(1, 3),))
    assert own_bodies(world, change) == [
        records.ToolUse("a", "{}"),
        records.ToolUse("b", "{}"),
        records.ToolResult(2, "ra", (2,)),
        records.ToolResult(3, "rb", (3,)),
    ]


def test_replacements_stand_where_their_range_began_and_are_rendered_after_it():
    world, session = history(*[records.Appended(None, (n,)) for n in range(1, 7)])
    change = world.rebase(
        session, (Replace(2, 3, Role.USER, "two"), Replace(3, 5, Role.ASSISTANT, "three, four"), Drop(6, 7))
    )
    assert own_bodies(world, change) == [
        records.Message(Role.USER, "two", (9001, 1, 3)),
        records.Message(Role.ASSISTANT, "three, four", (9002, 4, 11)),
        records.Appended(None, (5,)),
    ]


@given(st.data())
def test_any_rebase_keeps_what_its_edits_do_not_name(data):
    world = World()
    session = world.create().head.id
    for _ in range(data.draw(st.integers(1, 12))):
        world.write(session, data.draw(bodies(world.states[session], feeds=False)))
    chosen = data.draw(edits(world.states[session]))
    parent = world.timelines[session]
    change = world.rebase(session, chosen)

    assert [e.event_id for e in change.events] == list(range(chosen[0].from_, change.head.events))
    assert all(event.epoch == 1 for event in change.events)
    gone = {n for edit in chosen for n in range(edit.from_, edit.to)}
    kept = [e for e in parent[chosen[0].from_ :] if e.event_id not in gone]
    mine = change.events[1:]
    replacing = [edit for edit in chosen if isinstance(edit, Replace)]
    in_stream = [e for e in kept if isinstance(e.body, (*COPIED, records.ToolUse, records.ToolResult))]
    assert len(mine) == len(in_stream) + len(replacing)

    places = iter(mine)
    new_ids = {}
    waiting = list(replacing)
    for event in in_stream:
        new = next(places)
        while waiting and waiting[0].from_ < event.event_id:
            assert (new.body.role, new.body.text) == (waiting[0].role, waiting[0].text)
            waiting.pop(0)
            new = next(places)
        assert span_of(new.body) == span_of(event.body)
        match event.body:
            case records.ToolUse():
                assert new.body == event.body
                new_ids[event.event_id] = new.event_id
            case records.ToolResult(call_id=call_id, content=content, span=span) if call_id in new_ids:
                assert new.body == records.ToolResult(new_ids[call_id], content, span)
            case records.ToolResult(content=content, span=span):
                assert new.body == records.Message(Role.TOOL, content, span)
            case _:
                assert new.body == event.body
    assert [event.body.text for event in places] == [edit.text for edit in waiting]
    assert world.fold(change.head.id) == world.states[change.head.id]


def batch(version, *tokens, evicted=0, dropped=0, head=(), unseen=0):
    entries = tuple(records.Entry(str(t), () if n < unseen else (t,)) for n, t in enumerate(tokens))
    return records.Ingested(version, head, entries, evicted, dropped)


def test_data_is_ingested_again_and_what_it_pushed_out_leaves_again():
    world, session = history(
        batch(1, 11, 12, head=(90,)),  # 1
        batch(2, 13, 14),  # 2
        batch(3, 15, evicted=3),  # 3 pushes out 11, 12, 13
        batch(4, 16, 17, evicted=3, dropped=2, unseen=1),  # 4 pushes out 14, 15 and 16
    )
    assert list(world.states[session].tokens) == [90, 17]
    change = world.rebase(session, (Drop(2, 3),))
    assert own_bodies(world, change) == [batch(3, 15, evicted=2), batch(4, 16, 17, evicted=2, dropped=2, unseen=1)]
    child = world.states[change.head.id]
    assert list(child.tokens) == [90, 17]
    assert (child.feed.version, child.feed.taken, child.feed.evicted) == (4, 5 + 2, 2 + 2)


def test_a_batch_whose_opener_is_gone_opens_the_turn_itself():
    user = records.Message(Role.USER, "u", (1, 2))
    world, session = history(user, batch(1, 11, head=(90,)), batch(2, 12), records.GenerationPrompt((91, 92)))
    change = world.rebase(session, (Drop(2, 3),))
    assert own_bodies(world, change) == [batch(2, 12, head=(9200, 2)), records.GenerationPrompt((91, 92))]
    change = world.rebase(session, (Drop(2, 4),))
    assert own_bodies(world, change) == [records.GenerationPrompt((9100, 2))]
    change = world.rebase(session, (Replace(1, 2, Role.USER, "new"), Drop(4, 5)))
    assert own_bodies(world, change) == [
        records.Message(1, "new", (9001, 0, 3)),
        batch(1, 11, head=(90,)),
        batch(2, 12),
    ]
    world.write(session, batch(3, 13, head=(90,)))
    change = world.rebase(session, (Drop(4, 5),))
    assert own_bodies(world, change) == [batch(3, 13)]


def test_a_user_text_that_stood_among_data_stands_alone_without_them():
    world, session = history(batch(1, 11, head=(90,)), records.Message(Role.USER, "u", (91,)))
    change = world.rebase(session, (Drop(1, 2),))
    assert own_bodies(world, change) == [records.Message(Role.USER, "u", (9001, 0, 1))]


def test_a_rewind_goes_back_to_the_message_that_it_went_back_to():
    said = [records.Message(Role.USER, str(n), (n,)) for n in range(1, 5)]
    world, session = history(*said, batch(1, 11, head=(90,)), records.Rewound(3, 2), records.Restored((80,)))
    assert list(world.states[session].tokens) == [1, 2, 3, 80, 11]
    change = world.rebase(session, (Drop(1, 2),))
    assert list(world.states[change.head.id].tokens) == [2, 3, 80, 11]
    change = world.rebase(session, (Drop(3, 4),))
    assert list(world.states[change.head.id].tokens) == [1, 2, 80, 11]
    change = world.rebase(session, (Drop(1, 4),))
    assert list(world.states[change.head.id].tokens) == [80, 11]
    change = world.rebase(session, (Drop(5, 6),))
    assert list(world.states[change.head.id].tokens) == [1, 2, 3]
    assert world.states[change.head.id].tail is Tail.TURN
    change = world.rebase(session, (Drop(6, 7),))
    assert list(world.states[change.head.id].tokens) == [1, 2, 3, 4, 90, 11]
    change = world.rebase(session, (Drop(7, 8),))
    assert [list(entry) for entry in world.states[change.head.id].feed.detached] == [[11]]


@given(st.data())
def test_a_rebase_of_a_feed_keeps_the_entries_that_its_edits_do_not_name(data):
    world = World()
    session = world.create().head.id
    token = iter(range(10_000, 20_000))
    origin = {}
    for _ in range(data.draw(st.integers(1, 12))):
        state = world.states[session]
        body = data.draw(batches(state) | bodies(state, feeds=False))
        if isinstance(body, records.Ingested):
            entries = tuple(records.Entry(e.text, e.span and (next(token),)) for e in body.entries)
            body = replace(body, entries=entries)
            origin |= {entry.span[0]: state.events for entry in entries if entry.span}
        world.write(session, body)
    chosen = data.draw(edits(world.states[session]))
    gone = {n for edit in chosen for n in range(edit.from_, edit.to)}
    bodies_gone = [event.body for event in world.timelines[session] if event.event_id in gone]
    # What a batch pushed out comes back where the batch itself is left out.
    assume(not any(isinstance(body, records.Ingested) and body.evicted for body in bodies_gone))
    child = world.states[world.rebase(session, chosen).head.id]

    def entries_of(state):
        return [state.tokens[start] for start, _ in state.feed.entries]

    assert entries_of(child) == [t for t in entries_of(world.states[session]) if origin[t] not in gone]
    assert list(child.tokens) == Reference(world.timelines[child.id]).tokens
    assert child.feed.evicted >= 0


@given(st.data())
def test_any_rebase_of_anything_folds(data):
    world = World()
    session = world.create().head.id
    for _ in range(data.draw(st.integers(1, 12))):
        world.write(session, data.draw(bodies(world.states[session])))
    child = world.rebase(session, data.draw(edits(world.states[session]))).head.id
    assert world.fold(child) == world.states[child]
    feed = world.states[child].feed
    assert min(feed.evicted, feed.dropped, feed.ingested, feed.version) >= 0
    assert feed.taken <= world.states[session].feed.taken
