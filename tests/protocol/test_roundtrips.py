"""Both encodings give back what they were given, and any other bytes give one error type."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from superfluid.protocol import jsonform, postcard, records, requests, responses, shapes, ticks, wire
from superfluid.protocol.errors import DecodeError, FrameTooLong
from superfluid.protocol.frames import MAX_FRAME, FrameReader, frame
from tests.protocol.strategies import values

SUMS = [requests.Request, responses.Response, records.EventBody, ticks.WorkerRequest, ticks.WorkerReply]


@given(data=st.data(), union=st.sampled_from(SUMS))
def test_postcard_round_trip(data, union):
    value = data.draw(values(union))
    assert postcard.decode(union, postcard.encode(union, value)) == value


@given(data=st.data(), union=st.sampled_from(SUMS))
def test_json_round_trip(data, union):
    value = data.draw(values(union))
    assert jsonform.loads(union, jsonform.dumps(union, value)) == value


@pytest.mark.parametrize("variant", shapes.variants_of(requests.Request), ids=lambda v: v.__name__)
@given(data=st.data())
def test_every_request_has_both_forms(variant, data):
    value = data.draw(values(variant))
    encoded = jsonform.to_json(requests.Request, value)
    if shapes.fields_of(variant):
        assert list(encoded) == [variant.__name__]
        assert list(encoded[variant.__name__]) == [f.key for f in shapes.fields_of(variant)]
    else:
        assert encoded == variant.__name__
        assert jsonform.from_json(requests.Request, {variant.__name__: None}) == value
    assert postcard.decode(requests.Request, postcard.encode(requests.Request, value)) == value


@given(st.binary(max_size=200), st.sampled_from(SUMS))
def test_any_bytes_are_a_value_or_one_error(noise, union):
    try:
        value = postcard.decode(union, noise)
    except DecodeError:
        return
    assert type(value) in shapes.variants_of(union)


@given(st.data(), st.sampled_from(SUMS), st.integers(0, 500), st.integers(1, 255))
def test_a_flipped_byte_is_a_value_or_one_error(data, union, place, flip):
    encoded = bytearray(postcard.encode(union, data.draw(values(union))))
    encoded[place % len(encoded)] ^= flip
    try:
        postcard.decode(union, bytes(encoded))
    except DecodeError:
        pass


@given(st.data(), st.sampled_from([requests.Request, responses.Response, records.EventBody]))
def test_every_truncation_is_an_error(data, union):
    encoded = postcard.encode(union, data.draw(values(union)))
    old_daemon = b"\x00" in encoded[-17:]  # an Inspection may lack its last field
    for length in range(len(encoded)):
        try:
            value = postcard.decode(union, encoded[:length])
        except DecodeError:
            continue
        assert isinstance(value, responses.Inspection)
        assert old_daemon or length == len(encoded) - 17


@given(st.lists(st.integers(0, 127) | st.integers(0, (1 << 32) - 1), max_size=40))
def test_numbers_in_a_row_are_written_like_single_ones(numbers):
    singly = b"".join(postcard.encode(wire.U32, number) for number in numbers)
    assert postcard.encode(wire.Span, tuple(numbers)) == bytes([len(numbers)]) + singly


@pytest.mark.parametrize("wrong", [-1, 1 << 32])
def test_a_number_that_does_not_fit_is_named_among_others(wrong):
    with pytest.raises(ValueError, match=f"^{wrong} is no u32$"):
        postcard.encode(wire.Span, (5, wrong, 1 << 40))


@given(st.integers(0, 40), st.binary(max_size=60) | st.lists(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF])).map(bytes))
def test_numbers_in_a_row_are_read_like_single_ones(count, noise):
    """Also those that are longer than they need be, too long, or cut short."""
    cursor = postcard._Cursor(bytes([count]) + noise)
    try:
        singly = tuple(cursor.varint(32) for _ in range(cursor.count()))
    except DecodeError as fault:
        with pytest.raises(DecodeError, match=f"^{re.escape(str(fault))}$"):
            postcard.decode(wire.Span, bytes([count]) + noise)
        return
    assert postcard.decode(wire.Span, bytes([count]) + noise) == singly


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(JSON, st.sampled_from(shapes.variants_of(requests.Request)), st.data())
def test_any_json_is_a_value_or_one_error(noise, variant, data):
    fields = {field.key: noise for field in shapes.fields_of(variant) if data.draw(st.booleans())}
    for body in (noise, {variant.__name__: noise}, {variant.__name__: fields}):
        try:
            jsonform.loads(requests.Request, json.dumps(body))
        except DecodeError:
            pass


def places(value, path=()):
    """The path of everything in parsed JSON."""
    yield path
    for key, part in (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    ):
        yield from places(part, (*path, key))


def with_other(value, path, other):
    """Parsed JSON, with something else in one place."""
    if not path:
        return other
    copy = value.copy()
    copy[path[0]] = with_other(value[path[0]], path[1:], other)
    return copy


ODD = st.sampled_from([None, True, False, 0, 1, -1, 256, 2**32, 2**64, 0.5, "", "x", "0", [], [0], [256], ["x"], {}])


@given(st.data(), st.sampled_from([requests.Request, responses.Response, records.EventBody]), ODD)
def test_one_odd_value_is_an_error_or_fits(data, union, odd):
    """What is let through has the type of its field, or its bytes would say something else."""
    body = jsonform.to_json(union, data.draw(values(union)))
    place = data.draw(st.sampled_from(list(places(body))))
    try:
        value = jsonform.from_json(union, with_other(body, place, odd))
    except DecodeError:
        return
    assert postcard.decode(union, postcard.encode(union, value)) == value


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('{"Generate":{"session":1,"max_tokens":"x"}}', ".Generate.max_tokens: expected a whole number"),
        ('{"Generate":{"session":1}}', ".Generate.max_tokens: missing"),
        ('{"Generate":{"session":1.0,"max_tokens":1}}', ".Generate.session: expected a whole number"),
        ('{"Generate":{"session":true,"max_tokens":1}}', ".Generate.session: expected a whole number"),
        ('{"Append":{"session":1,"span":[1,-2]}}', ".Append.span[1]: expected a whole number"),
        ('{"AppendMessage":{"session":1,"role":1,"text":true}}', ".AppendMessage.text: expected text"),
        ('{"SetQos":{"session":1,"class":0,"batch_invariant":1}}', ".SetQos.batch_invariant: expected true or false"),
        ('{"PutMedia":{"bytes":"AA==","mime":""}}', ".PutMedia.bytes: expected an array of numbers"),
        ('{"PutMedia":{"bytes":[256],"mime":""}}', ".PutMedia.bytes: expected an array of numbers from 0 to 255"),
        (
            '{"Purge":{"session":1,"expected_generation":0,"mode":"cascade"}}',
            ".Purge.mode: expected one of Cascade",
        ),
        ('{"Rebase":{"session":1,"edits":[{"Drop":{"from":1}}]}}', ".Rebase.edits[0].Drop.to: missing"),
        ('{"Nope":{}}', "'Nope' is no Request; one of Create"),
        ('"Generate"', "Generate has fields: session, max_tokens"),
        ("[", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ('{"AppendMessage":{"session":1,"role":1,"text":"\\ud800"}}', ".AppendMessage.text: expected text"),
    ],
)
def test_json_errors_name_the_field(text, names):
    with pytest.raises(DecodeError) as caught:
        jsonform.loads(requests.Request, text)
    assert names in str(caught.value)


def test_json_details():
    params = {"temperature": 0.7, "top_p": 1, "min_p": 0, "top_k": 0, "seed": 2**64 - 1, "unknown": []}
    create = jsonform.from_json(requests.Request, {"Create": {"params": params}})
    assert create.parent is None
    shown = jsonform.dumps(requests.Request, create)
    assert shown == (
        '{"Create":{"parent":null,"params":{"temperature":0.7,"top_p":1.0,"min_p":0.0,"top_k":0,'
        '"seed":18446744073709551615}}}'
    )
    assert jsonform.to_json(responses.Response, responses.Tree(((1, None, 0),))) == {
        "Tree": {"nodes": [[1, None, 0]]}
    }
    assert jsonform.from_json(requests.Request, {"PutMedia": {"bytes": [255, 0], "mime": ""}}).bytes_ == b"\xff\x00"


def test_nesting_is_bounded():
    bomb = bytes([15, 0, 1, 0]) * 5000
    with pytest.raises(DecodeError, match="nested deeper"):
        postcard.decode(records.EventBody, bomb)


def test_announced_lengths_are_checked_before_allocation():
    with pytest.raises(DecodeError, match="items announced"):
        postcard.decode(requests.Request, bytes.fromhex("01 01 00 ff ff ff ff ff ff ff ff 7f"))


@given(st.lists(st.binary(max_size=40), max_size=6), st.data())
def test_frames_in_any_split(payloads, data):
    stream = b"".join(frame(payload) for payload in payloads)
    reader, got = FrameReader(), []
    while stream:
        cut = data.draw(st.integers(1, len(stream)))
        reader.feed(stream[:cut])
        got += reader.frames()
        stream = stream[cut:]
    assert got == payloads
    assert reader.pending == 0


def test_a_frame_over_the_limit_is_refused_at_its_prefix():
    reader = FrameReader()
    reader.feed(MAX_FRAME.to_bytes(4, "little"))
    assert reader.next_frame() is None
    reader = FrameReader()
    reader.feed((MAX_FRAME + 1).to_bytes(4, "little"))
    with pytest.raises(FrameTooLong):
        reader.next_frame()


@given(st.lists(st.integers(0, 2**32 - 1)))
def test_packed_tokens(tokens):
    assert list(ticks.unpack(ticks.pack(tokens))) == tokens
    with pytest.raises(ValueError):
        ticks.unpack(ticks.pack([1]) + b"x")
