"""Streams: what they yield, what they come to, and how they end."""

import pytest
from superfluid_client import Chunk, SessionBusy, SuperfluidError, ToolCall

from tests.pyclient.fake_web import HangUp, Raw, Status, Until
from tests.pyclient.said import ahead, committed, done, generated, tool_use

ASKED = {"session": 1, "max_tokens": 8, "provisional": True}
PLAIN = {**ASKED, "provisional": False}
CANCEL = {"Cancel": {"session": 1}}
IDLE = {"Err": {"message": "session 1 has no generation in flight"}}


def test_text_comes_ahead_of_its_commit(session, web):
    web.stream(
        ASKED,
        ahead("Let me see.", 1),
        committed(generated(3, "Let me see.", channel=1)),
        ahead("The "),
        ahead(""),
        ahead("Nile."),
        committed(generated(4, "The Nile.", finish=1)),
        done(),
    )
    stream = session.stream(8)
    assert stream.reply is None
    assert list(stream) == [Chunk("reasoning", "Let me see."), Chunk("text", "The "), Chunk("text", "Nile.")]
    assert stream.reply.text == str(stream.reply) == "The Nile."
    assert stream.reply.reasoning == "Let me see."
    assert (stream.reply.finish, stream.reply.tokens, stream.reply.warm_prefix) == ("stop", 3, 7)
    assert [event.id for event in stream.reply.events] == [3, 4]


def test_text_comes_once_it_is_committed(session, web):
    web.stream(
        PLAIN,
        committed(generated(3, "Hm.", channel=1)),
        ahead("never asked for"),
        committed(generated(4, "The Nile.")),
        committed(generated(5, '{"name"', channel=2)),
        committed(generated(6, "", finish=1)),
        done(),
    )
    assert list(session.stream(8, provisional=False)) == [
        Chunk("reasoning", "Hm."),
        Chunk("text", "The Nile."),
        Chunk("tool_call", '{"name"'),
    ]


def test_text_that_trails_the_summary_is_not_lost(session, web):
    web.stream(ASKED, committed(generated(3, "Nile", finish=1)), done(), ahead("Nile"))
    assert list(session.stream(8)) == [Chunk("text", "Nile")]


def test_a_reply_has_the_calls_that_the_model_made(session, web):
    web.stream(PLAIN, committed(generated(3, "{...}", channel=2)), committed(tool_use(4)), done())
    reply = session.generate(8)
    assert reply.tool_calls == [ToolCall(4, "get_weather", '{"city": "Paris"}')]
    assert reply.text == "{...}"
    assert reply.tool_calls[0].json() == {"city": "Paris"}


def test_generate_hears_the_text_as_it_is_drawn(session, web):
    web.stream(ASKED, ahead("Hm.", 1), ahead("The "), ahead("Nile."), committed(generated(3, "The Nile.")), done(2))
    heard = []
    assert session.generate(8, on_text=heard.append).finish == "length"
    assert heard == ["The ", "Nile."]


@pytest.mark.parametrize(
    ("code", "name"),
    [(0, "none"), (1, "stop"), (2, "length"), (3, "grammar"), (4, "cancelled"), (5, "error"), (9, "9")],
)
def test_a_finish_has_a_name(session, web, code, name):
    web.stream(PLAIN, done(code))
    assert session.generate(8).finish == name


def test_1024_tokens_unless_said_otherwise(session, web):
    web.stream({**ASKED, "max_tokens": 1024}, done())
    web.stream({**PLAIN, "max_tokens": 1024}, done())
    assert list(session.stream()) == []
    session.generate()


def test_lines_without_data_are_skipped(session, web):
    web.stream(ASKED, Raw(b": keep-alive\n\nevent: x\r\ndata:"), Raw(b' {"later": 1}\r\n\r\n'), ahead("Nile"), done())
    assert list(session.stream(8)) == [Chunk("text", "Nile")]


def test_a_stream_is_iterated_once(session, web):
    web.stream(ASKED, done())
    stream = session.stream(8)
    assert list(stream) == []
    with pytest.raises(RuntimeError, match="once"):
        iter(stream)


def test_a_stream_that_is_not_iterated_asks_for_nothing(session, web):
    session.stream(8)
    assert web.seen == []


def test_leaving_early_cancels_and_waits_for_the_end(session, web):
    last = {"done": {"tokens_generated": 2, "finish": 4, "warm_prefix": 0}}
    web.stream(ASKED, ahead("The "), Until(CANCEL), committed(generated(3, "The Nile", finish=4)), last)
    web.rpc(CANCEL, "Cancelling")
    stream = session.stream(8)
    for chunk in stream:
        assert chunk.text == "The "
        break
    assert web.bodies == [ASKED, CANCEL]
    assert (stream.reply.finish, stream.reply.text) == ("cancelled", "The Nile")


def test_leaving_by_an_exception_cancels_too(session, web):
    def fail(_):
        raise ZeroDivisionError

    web.stream(ASKED, ahead("The "), Until(CANCEL), done(4))
    web.rpc(CANCEL, "Cancelling")
    with pytest.raises(ZeroDivisionError):
        session.generate(8, on_text=fail)
    assert web.bodies == [ASKED, CANCEL]


@pytest.mark.parametrize(
    "ending",
    [
        [{"error": "generation failed: engine lane fault (code 5)"}],
        [HangUp()],
        [Raw(b"data: nonsense\n\n")],
        [Raw(b"")],
    ],
    ids=["error", "hang up", "nonsense", "end"],
)
def test_leaving_early_is_quiet_whatever_ends_the_stream(session, web, ending):
    web.stream(ASKED, ahead("The "), Until(CANCEL), *ending)
    web.rpc(CANCEL, IDLE)
    stream = session.stream(8)
    for _ in stream:
        break
    assert stream.reply is None


def test_leaving_a_daemon_that_is_gone_is_quiet(session, web):
    web.stream(ASKED, ahead("The "), Until(CANCEL))
    web.rpc(CANCEL, HangUp())
    for _ in session.stream(8):
        break


def test_leaving_after_the_summary_cancels_nothing(session, web):
    web.stream(ASKED, done(), ahead("Nile"))
    for _ in session.stream(8):
        break
    assert web.bodies == [ASKED]


def test_an_error_frame_is_raised(session, web):
    web.stream(PLAIN, {"error": "unknown session 1"})
    with pytest.raises(SuperfluidError, match="unknown session 1") as caught:
        session.generate(8)
    assert type(caught.value) is SuperfluidError
    assert caught.value.status is None


def test_an_error_frame_of_a_busy_session_says_so(session, web):
    web.stream(PLAIN, {"error": "session 1 is generating; wait for it or cancel it"})
    with pytest.raises(SessionBusy):
        session.generate(8)


@pytest.mark.parametrize(
    ("ending", "says"),
    [
        (Raw(b""), "ended before its reply was done"),
        ({"later": 1}, "ended before its reply was done"),
        (HangUp(), "ended before its reply was done|the stream broke"),
        (Raw(b"data: nonsense\n\n"), "not JSON"),
    ],
    ids=["end", "done without a summary", "hang up", "nonsense"],
)
def test_a_stream_without_its_summary_has_failed(session, web, ending, says):
    web.stream(ASKED, ahead("The "), ending)
    chunks = []
    with pytest.raises(SuperfluidError, match=says):
        chunks.extend(session.stream(8))
    with_one = [Chunk("text", "The ")]
    assert chunks in (with_one, [])


def test_a_break_after_the_summary_is_no_failure(session, web):
    web.stream(PLAIN, done(), Raw(b"data: nonsense\n\n"))
    assert session.generate(8).finish == "stop"


@pytest.mark.parametrize("code", [401, 403, 500])
def test_a_refused_stream_is_raised(session, web, code):
    web.stream(PLAIN, Status(code))
    with pytest.raises(SuperfluidError, match=f"^/web/stream: {code} ") as caught:
        session.generate(8)
    assert caught.value.status == code
