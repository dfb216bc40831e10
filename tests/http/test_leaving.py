"""Clients that leave, or do not read: nothing goes on being drawn for them."""

import socket
import struct
from contextlib import ExitStack

import anthropic
import openai
import pytest

from tests.http.server import eventually, request

CHAT = "/v1/chat/completions"
LONG = {"temperature": 0, "max_tokens": 1500, "ignore_eos": True}


def said(text):
    return [{"role": "user", "content": text}]


def open_streams(server, stack, count, **fields):
    """Raw connections on which a long reply was asked for."""
    streams = []
    for number in range(count):
        stream = stack.enter_context(server.connection())
        stream.sendall(request(CHAT, {**LONG, "messages": said(f"Talk about {number}."), **fields}))
        streams.append(stream)
    return streams


def settled(server):
    """Nothing runs or waits, and nothing more is drawn."""
    eventually(server.idle)
    drawn = server.metric("superfluid_decode_tokens_total")
    assert server.chat().status_code == 200
    assert server.metric("superfluid_decode_tokens_total") - drawn < 100


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "in one piece"])
def test_leaving_ends_what_runs_and_what_waits(slow, stream):
    before = slow.metric("superfluid_decode_tokens_total")
    with ExitStack() as stack:
        streams = open_streams(slow, stack, 10, stream=stream)
        eventually(lambda: slow.metric("superfluid_lanes_active") == 4 and slow.metric("superfluid_queue_depth") == 6)
        if stream:
            eventually(lambda: slow.metric("superfluid_decode_tokens_total") - before > 40)
            assert sum(_has_chunks(one) for one in streams) >= 4
    settled(slow)
    assert slow.metric("superfluid_decode_tokens_total") - before < 4 * 1500


def _has_chunks(stream):
    stream.settimeout(0.01)
    try:
        return b"data: " in stream.recv(1 << 16)
    except TimeoutError:
        return False


def test_leaving_in_prefill(slow):
    before = slow.metric("superfluid_prefill_tokens_total")
    with ExitStack() as stack:
        open_streams(slow, stack, 1, messages=said("word " * 1800))
        eventually(lambda: slow.metric("superfluid_lanes_active") == 1)
    eventually(slow.idle)
    assert slow.metric("superfluid_prefill_tokens_total") - before < 1800


def test_leaving_with_a_reset(slow):
    with ExitStack() as stack:
        for stream in open_streams(slow, stack, 4, stream=True):
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        eventually(lambda: slow.metric("superfluid_lanes_active") == 4)
    settled(slow)


def test_leaving_one_of_several_choices_ends_all(slow):
    with ExitStack() as stack:
        open_streams(slow, stack, 1, n=8)
        eventually(lambda: slow.metric("superfluid_lanes_active") + slow.metric("superfluid_queue_depth") == 8)
    settled(slow)


def test_leaving_before_the_body_is_complete(slow):
    with slow.connection() as stream:
        stream.sendall(request(CHAT, {**LONG, "messages": said("x")})[:-5])
    settled(slow)


def test_the_client_closes_a_stream(slow):
    with slow.openai.chat.completions.create(
        model="m",
        messages=said("x"),
        stream=True,
        **{name: value for name, value in LONG.items() if name != "ignore_eos"},
    ) as stream:
        for number, _ in enumerate(stream):
            if number == 5:
                break
    settled(slow)


def test_timeouts_end_what_they_gave_up(slow):
    long = {"model": "m", "messages": said("x"), "max_tokens": 1500}
    with pytest.raises(openai.APITimeoutError):
        slow.openai.with_options(timeout=0.3).chat.completions.create(**long)
    eventually(slow.idle)
    with (
        anthropic.Anthropic(base_url=slow.url, api_key="x", max_retries=0, timeout=0.3) as client,
        pytest.raises(anthropic.APITimeoutError),
    ):
        client.messages.create(**long)
    eventually(slow.idle)


def test_who_does_not_read_holds_no_lane(quick):
    with ExitStack() as stack:
        stream = stack.enter_context(socket.socket())
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stream.connect(quick.address)
        stream.sendall(request(CHAT, {**LONG, "messages": said("x"), "stream": True, "n": 8}))
        eventually(lambda: quick.metric("superfluid_decode_tokens_total") > 1000)
        eventually(quick.idle)
        assert quick.chat().status_code == 200
