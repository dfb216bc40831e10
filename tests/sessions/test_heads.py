"""The tree of sessions: who stores which events, however deep the forks."""

from dataclasses import replace

import pytest

from superfluid.protocol import records
from superfluid.protocol.codes import PurgeMode
from superfluid.protocol.refusals import SessionPurged, UnknownSession
from superfluid.sessions.heads import FIRST_REQUEST, FeedHead, Heads, Segment
from tests.sessions.world import World


def chain(depth):
    """Forks of forks, each two events longer than its parent was at the fork."""
    world = World()
    sessions = [world.create().head.id]
    for n in range(depth):
        world.write(sessions[-1], records.Appended(None, (n,)))
        sessions.append(world.fork(sessions[-1], world.states[sessions[-1]].events).head.id)
    return world, sessions


def test_segments_of_a_deep_chain():
    world, sessions = chain(300)
    last = world.heads.live(sessions[-1])
    segments = world.heads.segments(last.id, 0, last.events)
    assert [segment.session for segment in segments] == sessions
    assert world.stored(segments) == world.timelines[last.id]
    assert world.heads.segments(last.id, 7, 8) == (Segment(sessions[3], 7, 8),)
    assert world.heads.segments(last.id, 5, 5) == ()
    assert world.heads.segments(last.id, 9_999, 99_999) == ()
    assert len(world.heads.descendants(sessions[0])) == 300


def test_a_fork_before_the_parents_own_records_reads_past_the_parent():
    world, sessions = chain(3)
    early = world.fork(sessions[-1], 1).head.id
    assert world.heads.segments(early, 0, 9) == (Segment(sessions[0], 0, 1), Segment(early, 1, 2))
    # The link in between may go: what it inherited itself is read from where it lies.
    world.purge(sessions[-1], PurgeMode.REROOT)
    assert world.heads.segments(early, 0, 9) == (Segment(early, 0, 3),)


def test_segments_after_a_reroot_in_the_middle():
    world, sessions = chain(4)
    leaf = sessions[-1]
    before = world.timelines[leaf][:]
    world.purge(sessions[1], PurgeMode.REROOT)
    segments = world.heads.segments(leaf, 0, len(before))
    assert {segment.session for segment in segments} == {sessions[2], sessions[3], leaf}
    assert world.stored(segments) == before
    assert world.heads.descendants(sessions[0]) == ()


def test_a_cascade_lists_descendants_before_their_ancestors():
    world, sessions = chain(2)
    twin = world.fork(sessions[1], 1).head.id
    below = world.heads.descendants(sessions[0])
    assert set(below) == {*sessions[1:], twin}
    assert below[-1] == sessions[1]
    gone = world.purge(sessions[0], PurgeMode.CASCADE)
    assert [change.head.id for change in gone.purged] == [*below, sessions[0]]
    assert world.living() == []


def test_names_of_what_is_not_there():
    world, sessions = chain(1)
    with pytest.raises(UnknownSession, match=r"^unknown session 99$"):
        world.heads.live(99)
    assert world.heads.any(99) is None
    world.purge(sessions[1], PurgeMode.CASCADE)
    with pytest.raises(SessionPurged, match=f"session {sessions[1]} was purged"):
        world.heads.live(sessions[1])
    assert world.heads.any(sessions[1]).purged


def test_ids_go_on_after_a_restart_and_past_purged_ones():
    world, sessions = chain(2)
    world.purge(sessions[-1], PurgeMode.CASCADE)
    assert Heads(world.all_heads()).next_id() == sessions[-1] + 1
    assert Heads().next_id() == 1


def test_a_summary_says_what_the_head_says():
    world, sessions = chain(1)
    world.write(sessions[1], records.MetaUpdated(1, "t", True), records.ToolUse("f", "{}"))
    summary = world.heads.live(sessions[1]).summary()
    assert (summary.id, summary.parent, summary.fork_at) == (sessions[1], sessions[0], 2)
    assert (summary.title, summary.archived, summary.meta_version, summary.generation) == ("t", True, 1, 0)
    assert (summary.events, summary.tokens, summary.open_tool_calls) == (5, 1, 1)


def test_requests_have_ids_of_their_own_and_leave_no_tombstones():
    world = World()
    one, two = (replace(world.create().head, id=FIRST_REQUEST + n, archived=True) for n in (4, 7))
    heads = Heads((one, two), last_id=FIRST_REQUEST + 9)
    assert one.is_request
    assert not replace(one, archived=False).is_request
    assert not replace(one, feed=FeedHead(name="kept")).is_request
    assert (heads.next_id(), heads.next_request_id()) == (1, FIRST_REQUEST + 10)
    heads.put(replace(one, purged=True))
    assert heads.any(one.id) is None
    assert [head.id for head in heads.all_live()] == [two.id]
    for session in (one.id, FIRST_REQUEST, FIRST_REQUEST + 10):
        with pytest.raises(SessionPurged):
            heads.live(session)
        with pytest.raises(SessionPurged):  # of who has looked just before
            heads.segments(session, 0, 1)
    with pytest.raises(UnknownSession):
        heads.live(FIRST_REQUEST + 11)
    assert Heads((one,), last_id=3).next_id() == 1
    assert Heads((one,)).next_request_id() == one.id + 1
