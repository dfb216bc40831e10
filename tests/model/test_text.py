"""Bytes to text: what comes out does not depend on how the bytes were cut."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from superfluid.model.text import TextStream


def _all(pieces) -> str:
    stream = TextStream()
    return "".join([*map(stream.feed, pieces), stream.flush()])


def _split(data: bytes, cuts: list[int]) -> list[bytes]:
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(places)]


@given(st.text(st.characters(exclude_categories=["Cs"])), st.lists(st.integers(0, 1000)))
def test_valid_text_comes_out_unchanged(text, cuts):
    assert _all(_split(text.encode(), cuts)) == text


@given(
    st.lists(
        st.sampled_from([b"a", "é".encode(), "€".encode(), "🎉".encode(), b"\xff", b"\xe2\x82", b"\xf0\x9f", b"\x80"])
    ),
    st.lists(st.integers(0, 1000)),
)
def test_any_split_gives_the_same_text(parts, cuts):
    data = b"".join(parts)
    assert _all(_split(data, cuts)) == _all([data])


@given(st.binary(), st.lists(st.integers(0, 1000)))
def test_any_split_of_any_bytes_gives_the_same_text(data, cuts):
    assert _all(_split(data, cuts)) == _all([data])


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        ([b"\xff\xfe\xfd"], "\ufffd"),
        ([b"\xff", b"\xfe", b"\xfd", b"a", b"\xff"], "\ufffda\ufffd"),
        ([b"\xe2\x82"], "\ufffd"),
        ([b"\xff", b"\xe2"], "\ufffd"),
        ([b"\xe2\x82", b"a"], "\ufffda"),
        # a replacement character that was really in the text counts as text
        ([b"\xff", "\ufffd".encode(), b"\xff"], "\ufffd\ufffd\ufffd"),
        ([], ""),
    ],
)
def test_an_invalid_run_shows_once(pieces, text):
    assert _all(pieces) == text


def test_incomplete_bytes_wait_for_the_rest():
    stream = TextStream()
    assert [stream.feed(bytes([byte])) for byte in "a🎉".encode()] == ["a", "", "", "", "🎉"]
    assert stream.flush() == ""


def test_a_flushed_stream_is_as_new():
    stream = TextStream()
    assert stream.feed(b"\xff\xe2") == "\ufffd"
    assert stream.flush() == ""
    assert stream.feed(b"\xff") == "\ufffd"
