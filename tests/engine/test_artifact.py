"""A parked file is what was written, or is refused before anything of it is used."""

import os
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from superfluid.engine import artifact
from superfluid.engine.artifact import (
    Damaged,
    Foreign,
    Key,
    Unusable,
    header_for,
    most_bytes,
    open_artifact,
    read_state,
    write,
)
from superfluid.protocol.ticks import pack

KEY = Key(b"model", 0, False, "build 1")
TOKENS = pack(range(500, 700))
STATE = bytes(range(256)) * 50 + b"an odd end!"


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "written"
    with path.open("w+b") as file:
        size = write(file, header_for(KEY, 7, TOKENS, 3, STATE), STATE, lambda: None)
    assert path.stat().st_size == size
    return path


def read(path, key=KEY):
    with path.open("rb") as file:
        opened = open_artifact(file, key)
        return opened.header, read_state(file, opened)


def test_it_comes_back(path):
    header, state = read(path)
    assert (header.session, header.tokens, header.first, state) == (7, TOKENS, 3, STATE)


@given(state=st.binary(max_size=300), kind=st.integers(0, 2), piece=st.integers(1, 100))
def test_any_state_comes_back(tmp_path_factory, state, kind, piece):
    path = tmp_path_factory.mktemp("any") / "written"
    key = Key(b"", kind, False, "")
    before, artifact.PIECE = artifact.PIECE, 2 * piece
    try:
        with path.open("w+b") as file:
            header = header_for(key, 7, TOKENS, 3, state)
            assert write(file, header, state, lambda: None) <= most_bytes(len(state) * 8, 200)
        assert read(path, key)[1] == state
    finally:
        artifact.PIECE = before


@given(place=st.integers(0, 10_000), flip=st.integers(1, 255))
def test_any_flipped_byte_is_a_miss(tmp_path_factory, place, flip):
    path = tmp_path_factory.mktemp("flipped") / "written"
    with path.open("w+b") as file:
        write(file, header_for(KEY, 7, TOKENS, 3, STATE[:600]), STATE[:600], lambda: None)
    content = bytearray(path.read_bytes())
    content[place % len(content)] ^= flip
    path.write_bytes(content)
    with pytest.raises(Unusable):
        read(path)


def test_any_cut_is_a_miss(path):
    content = path.read_bytes()
    for kept in {*range(0, len(content), 37), len(content) - 1}:
        path.write_bytes(content[:kept])
        with pytest.raises(Damaged):
            read(path)
    path.write_bytes(content + b"x")
    with pytest.raises(Damaged):
        read(path)


@pytest.mark.parametrize(
    "key",
    [
        Key(b"other", 0, False, "build 1"),
        Key(b"model", 1, False, "build 1"),
        Key(b"model", 0, True, "build 1"),
        Key(b"model", 0, False, "build 2"),
    ],
)
def test_another_key_is_foreign(path, key):
    with pytest.raises(Foreign):
        read(path, key)


def test_a_newer_version_is_foreign(path):
    content = bytearray(path.read_bytes())
    content[8] += 1
    path.write_bytes(content)
    with pytest.raises(Foreign, match="version 2"):
        read(path)


def test_a_header_is_judged_without_the_payload(path):
    content = path.read_bytes()
    with open(path, "r+b") as file:
        file.seek(len(content) - 50)
        file.write(bytes(50))
    with path.open("rb") as file:
        opened = open_artifact(file, KEY)
        assert opened.header.tokens == TOKENS
        with pytest.raises(Damaged, match="payload's checksum"):
            read_state(file, opened)


def test_high_bytes_of_f16_compress_better_apart(tmp_path):
    state = os.urandom(4096)
    mixed = b"".join(bytes([low, 60]) for low in state)
    sizes = []
    for kind in (0, 1):
        with (tmp_path / str(kind)).open("w+b") as file:
            sizes.append(write(file, header_for(Key(b"", kind, False, ""), 1, b"", 0, mixed), mixed, lambda: None))
    assert sizes[0] < len(state) + 400 < sizes[1]
    assert stat.S_ISREG((tmp_path / "0").stat().st_mode)
