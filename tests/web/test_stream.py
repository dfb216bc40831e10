"""`/web/stream`: its frames, text ahead of its commit, and clients that leave or do not read."""

import json

import pytest
import trio
from trio.testing import MockClock

from superfluid.protocol.codes import Channel
from superfluid.protocol.records import Event, Generated, GenerationPrompt, ToolUse
from superfluid.transports.web.stream import QUIET, Frames, Outbox
from tests.web.server import eventually


def texts(frames, kind):
    if kind == "provisional":
        return [frame["provisional"]["text"] for frame in frames if "provisional" in frame]
    return [frame["committed"]["body"]["Generated"]["text"] for frame in frames if "committed" in frame]


@pytest.mark.parametrize("order", [{}, {"provisional": False}], ids=str)
def test_committed_text_alone(web, order):
    session = web.session()
    *frames, done = web.stream(session=session, max_tokens=12, **order)
    assert {key for frame in frames for key in frame} == {"committed"}
    assert list(done["done"]) == ["tokens_generated", "finish", "warm_prefix"]
    assert (done["done"]["tokens_generated"], done["done"]["finish"]) == (12, 2)
    told = [frame["committed"] for frame in frames]
    assert [list(event) for event in told] == [["event_id", "epoch", "ts_unix_ms", "body"]] * len(told)
    assert told == web.read(session)[-len(told) :]


@pytest.mark.parametrize("tokens", [1, 5, 60])
def test_text_comes_ahead_of_its_commit(web, tokens):
    frames = web.stream(session=web.session(temperature=1.0), max_tokens=tokens, provisional=True)
    assert "".join(texts(frames, "provisional")) == "".join(texts(frames, "committed"))
    shown = committed = ""
    for frame in frames[:-1]:
        if "provisional" in frame:
            assert list(frame["provisional"]) == ["channel", "text"]
            shown += frame["provisional"]["text"]
        else:
            committed += frame["committed"]["body"]["Generated"]["text"]
            assert shown.startswith(committed)
    assert list(frames[-1]) == ["done"]


def test_a_stream_continues_where_the_last_one_was_cut(web):
    whole, cut = web.session(temperature=1.0), web.session(temperature=1.0)
    expected = "".join(texts(web.stream(session=whole, max_tokens=30), "committed"))
    first = web.stream(session=cut, max_tokens=11)
    second = web.stream(session=cut, max_tokens=19)
    assert "".join(texts(first + second, "committed")) == expected
    assert second[-1]["done"]["warm_prefix"] > 0


def test_refusals_are_events(web):
    assert web.stream(session=99_999, max_tokens=4) == [{"error": "unknown session 99999"}]
    (frame,) = web.stream(session=web.session(None), max_tokens=4)
    assert "has no content" in frame["error"]


def test_nothing_to_draw(web):
    assert web.stream(session=web.session(), max_tokens=0) == [
        {"done": {"tokens_generated": 0, "finish": 0, "warm_prefix": 0}}
    ]


def test_who_leaves_cancels(slow):
    session = slow.session()
    with slow.streaming(session=session, max_tokens=1500, provisional=True) as frames:
        assert "provisional" in next(frames)
    eventually(lambda: slow.finishes(session) == [4])
    assert slow.rpc({"Cancel": {"session": session}})["Err"]["message"].endswith("no generation in flight")


def test_cancel_from_elsewhere_and_busy(slow):
    session = slow.session()
    with slow.streaming(session=session, max_tokens=1500, provisional=True) as frames:
        seen = [next(frames)]
        (refused,) = slow.stream(session=session, max_tokens=1)
        assert " is generating;" in refused["error"]
        assert slow.rpc({"Cancel": {"session": session}}) == "Cancelling"
        seen += frames
    assert seen[-1]["done"]["finish"] == 4
    assert "".join(texts(seen, "provisional")) == "".join(texts(seen, "committed"))


def test_who_does_not_read_holds_no_lane(slow):
    """The only lane there is."""
    session, other = slow.session(), slow.session()
    with slow.streaming(session=session, max_tokens=200, provisional=True):
        eventually(lambda: len(slow.read(session)) > 2)
        assert slow.stream(session=other, max_tokens=2)[-1]["done"]["finish"] == 2
        eventually(lambda: slow.finishes(session) == [2])


def test_the_daemon_drains(webs):
    web = webs()
    session = web.session()
    with web.streaming(session=session, max_tokens=1900, provisional=True) as frames:
        next(frames)
        assert web.daemon.stop() == 0
        *_, last = frames
    assert last["done"]["finish"] in (2, 4)


# --- frames and outbox, alone ------------------------------------------------------------------------------------


def frames_of(outbox):
    async def take():
        outbox.close()
        return await outbox.take() or b""

    lines = trio.run(take).decode().split("\n\n")[:-1]
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def generated(id, text, channel=Channel.TEXT):
    return Event(id, 1, 0, Generated((), text, channel, 0))


def ahead(frames):
    return [
        (frame["provisional"]["channel"], frame["provisional"]["text"]) for frame in frames if "provisional" in frame
    ]


def test_text_that_was_never_shown_is_shown_before_its_commit():
    frames = Frames(Outbox(), True)
    frames.provisional_text(0, "ab")
    frames.committed(generated(3, "abc\ufffd"))
    frames.committed(generated(4, "d"))
    told = frames_of(frames.outbox)
    assert ahead(told) == [(0, "ab"), (0, "c\ufffd"), (0, "d")]
    kinds = [next(iter(frame)) for frame in told]
    assert kinds == ["provisional", "provisional", "committed", "provisional", "committed"]


def test_text_may_run_ahead_of_several_commits_and_channels():
    frames = Frames(Outbox(), True)
    for channel, text in [(1, "why"), (0, "a"), (2, "call"), (1, "how"), (0, "b")]:
        frames.provisional_text(channel, text)
    for id, channel, text in [(3, 1, "why"), (4, 0, "a"), (5, 2, "call"), (6, 1, "how"), (7, 0, "b")]:
        frames.committed(generated(id, text, channel))
    assert ahead(frames_of(frames.outbox)) == [(1, "why"), (0, "a"), (1, "how"), (0, "b")]


def test_only_four_records_are_told_and_none_twice():
    frames = Frames(Outbox(), False)
    events = (generated(3, "a"), Event(4, 1, 0, ToolUse("f", "{}")))
    frames.committed(Event(2, 1, 0, GenerationPrompt((1,))))
    frames.committed(events[0])
    frames.catch_up(events)
    assert [frame["committed"]["event_id"] for frame in frames_of(frames.outbox)] == [3, 4]


def test_a_quiet_stream_says_that_it_is_there():
    async def wait():
        outbox = Outbox()
        assert await outbox.take() == b":\n\n"
        assert trio.current_time() - began == QUIET
        outbox.put({"error": "x"})
        assert outbox.bytes > 0
        assert await outbox.take() == b'data: {"error":"x"}\n\n'
        assert outbox.bytes == 0

    clock = MockClock(autojump_threshold=0)
    began = clock.current_time()
    trio.run(wait, clock=clock)
