"""Hypothesis strategies for the bodies that a daemon writes to a session; most call ids mean something."""

from hypothesis import strategies as st

from superfluid.protocol import records
from superfluid.protocol.codes import Channel, Finish, LedgerState, Role
from superfluid.sessions.state import SessionState, Tail

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
SPAN = st.lists(st.integers(0, 5) | st.integers(0, 2**32 - 1), max_size=4).map(tuple)
FULL_SPAN = st.lists(st.integers(0, 5) | st.integers(0, 2**32 - 1), min_size=1, max_size=4).map(tuple)
INSTANT = st.integers(0, 5) | st.integers(0, 2**64 - 1)


def batches(state: SessionState) -> st.SearchStrategy[records.Ingested]:
    """Any batch that may follow `state`; what pushed entries out at once has also pushed out all that was there."""
    entry = st.builds(records.Entry, TEXT, FULL_SPAN)
    held = len(state.feed.entries) + len(state.feed.detached)

    def build(entries: list[records.Entry], unseen: int, gone: int, head: records.Span, dropped: int):
        unseen = max(0, min(unseen, len(entries) - 1)) if gone >= held else 0
        seen = tuple(records.Entry(e.text, ()) if n < unseen else e for n, e in enumerate(entries))
        opens = state.tail is not Tail.DATA and bool(seen)
        version = state.feed.version + 1
        return records.Ingested(version, head if opens else (), seen, min(gone, held) + unseen, dropped)

    return st.builds(
        build, st.lists(entry, max_size=4), st.integers(0, 3), st.integers(0, held + 1), SPAN, st.integers(0, 2)
    )


def feed_bodies(state: SessionState) -> list[st.SearchStrategy[records.EventBody]]:
    """Bodies about a feed that may follow `state`."""
    flash = st.sampled_from(sorted(state.feed.flashes)) if state.feed.flashes else st.integers(1, 3)
    version = st.just(state.feed.version + 1)
    return [
        batches(state),
        batches(state),
        st.builds(records.Rewound, st.integers(0, len(state.said) + 1), version),
        st.builds(records.Restored, SPAN if state.tail is not Tail.DATA else st.just(())),
        st.builds(records.FeedOpened, st.integers(1, 99) | st.none(), st.booleans()),
        st.builds(records.FlashAdded, st.just(state.feed.last_flash + 1), TEXT, st.integers(1, 256)),
        st.builds(records.FlashRemoved, flash),
        st.builds(records.FlashAnswered, flash, TEXT, st.just(state.feed.version), st.floats(0, 9, width=32)),
    ]


def bodies(state: SessionState, *, feeds: bool = True) -> st.SearchStrategy[records.EventBody]:
    """Any body that may follow `state`; without `feeds`, of the original protocol."""
    calls = sorted(state.calls)
    call_id = st.integers(0, state.events) if not calls else st.sampled_from(calls) | st.integers(0, state.events)
    ended = [c for c, call in state.calls.items() if not call.is_open and call.state is not LedgerState.SUCCEEDED]
    question = st.sampled_from(sorted(state.permissions)) if state.permissions else st.integers(0, state.events)
    common = [
        st.builds(records.Appended, TEXT | st.none(), FULL_SPAN),
        st.builds(records.Message, st.sampled_from(Role), TEXT, SPAN),
        st.builds(records.GenerationPrompt, SPAN),
        st.builds(records.Generated, SPAN, TEXT, st.sampled_from(Channel), st.sampled_from(Finish)),
        st.builds(records.Block, st.sampled_from(Role), st.integers(1, 7), TEXT, SPAN, st.just(2)),
        st.builds(records.ToolUse, TEXT, TEXT),
        st.builds(records.ToolResult, call_id, TEXT, SPAN),
        st.builds(records.ToolExpired, call_id, TEXT),
        st.builds(records.ToolOutcome, call_id, st.sampled_from([1, 2]), TEXT),
        st.builds(records.ToolCancelRequested, call_id),
        st.builds(records.ToolLease, call_id, INSTANT),
        st.builds(records.ToolParseFailure, TEXT),
        st.builds(records.EpochBump),
        st.builds(records.GenerationFingerprint, INSTANT),
        st.builds(records.QosSet, st.integers(0, 3), st.booleans()),
        st.builds(records.Pinned, INSTANT),
        st.builds(records.PermissionRequest, call_id, TEXT),
        st.builds(records.PermissionResponse, question, st.booleans()),
        st.builds(records.MetaUpdated, st.just(state.meta_version + 1), TEXT | st.none(), st.booleans() | st.none()),
    ]
    if ended:
        common.append(st.builds(records.ToolReconciliation, st.sampled_from(sorted(ended)), TEXT))
    return st.one_of(common) | st.one_of(feed_bodies(state)) if feeds else st.one_of(common)


def edits(state: SessionState) -> st.SearchStrategy[tuple[records.RebaseEdit, ...]]:
    """Edits that `decide.check_edits` accepts; `state` has two events or more."""

    def build(points: list[int], kinds: list[tuple[bool, int, str]]) -> tuple[records.RebaseEdit, ...]:
        pairs = zip(points[::2], points[1::2], strict=False)
        ranges = [(start, stop) for start, stop in pairs if start < stop] or [(1, state.events)]
        return tuple(
            records.Replace(start, stop, role, text) if fresh else records.Drop(start, stop)
            for (start, stop), (fresh, role, text) in zip(ranges, kinds, strict=False)
        )

    point = st.integers(1, state.events)
    kind = st.tuples(st.booleans(), st.integers(0, 2), TEXT)
    return st.builds(
        build, st.lists(point, min_size=2, max_size=6).map(sorted), st.lists(kind, min_size=3, max_size=3)
    )
