"""The bytes at the start of a GGUF file (GGUF specification, versions 2 and 3, little endian).

    magic "GGUF", version u32, tensor count u64, pair count u64
    pairs:   key string, type u32, value
             (a string is a u64 length and bytes; an array an item type u32, a u64 count, items)
    tensors: name string, dimensions u32, u64 each, type u32, offset u64 from the start of the data
    padding to `general.alignment`, then the data

Scalars and short integer lists are kept, long arrays (the vocabulary) are stepped over.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import BinaryIO

Scalar = int | float | bool | str

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_U8, _I8, _U16, _I16, _U32, _I32, _F32, _BOOL, _STRING, _ARRAY, _U64, _I64, _F64 = range(13)
_SCALARS = {
    _U8: struct.Struct("<B"),
    _I8: struct.Struct("<b"),
    _U16: struct.Struct("<H"),
    _I16: struct.Struct("<h"),
    _U32: struct.Struct("<I"),
    _I32: struct.Struct("<i"),
    _F32: struct.Struct("<f"),
    _BOOL: struct.Struct("<?"),
    _U64: struct.Struct("<Q"),
    _I64: struct.Struct("<q"),
    _F64: struct.Struct("<d"),
}
_INTEGERS = frozenset((_U8, _I8, _U16, _I16, _U32, _I32, _U64, _I64))
_LENGTH = _SCALARS[_U64]

# How much a header may hold: far over any model known, low enough that a damaged one ends soon.
_MAX_PAIRS = 1 << 16
_MAX_TENSORS = 1 << 18
_MAX_ITEMS = 1 << 23
_MAX_NAME = 1 << 16
_MAX_KEPT_TEXT = 1 << 22
_MAX_KEPT_ITEMS = 4096
_MAX_DIMENSIONS = 4
_CHUNK = 1 << 20

# ggml type: (elements a block, bytes a block); types that are not here are not measured
_BLOCKS = {
    0: (1, 4),
    1: (1, 2),
    2: (32, 18),
    3: (32, 20),
    6: (32, 22),
    7: (32, 24),
    8: (32, 34),
    9: (32, 40),
    10: (256, 84),
    11: (256, 110),
    12: (256, 144),
    13: (256, 176),
    14: (256, 210),
    15: (256, 292),
    16: (256, 66),
    17: (256, 74),
    18: (256, 98),
    19: (256, 50),
    20: (32, 18),
    21: (256, 110),
    22: (256, 82),
    23: (256, 136),
    24: (1, 1),
    25: (1, 2),
    26: (1, 4),
    27: (1, 8),
    28: (1, 8),
    29: (256, 56),
    30: (1, 2),
    34: (256, 54),
    35: (256, 66),
    39: (32, 17),
    40: (64, 36),
    41: (128, 18),
}


class HeaderDamaged(Exception):
    """The bytes are not the header of a whole GGUF file. `str()` says why, without the path."""


@dataclass(frozen=True, slots=True)
class Header:
    """`values` are the scalar pairs, `lists` the integer arrays of at most 4,096 items, `tensors` how many follow."""

    version: int
    values: dict[str, Scalar]
    lists: dict[str, tuple[int, ...]]
    tensors: int


def read_header(file: BinaryIO, size: int) -> Header:
    """Read the header of a file of `size` bytes, from its start. Raises `HeaderDamaged`, or OSError of the disk."""
    if size == 0:
        raise HeaderDamaged("is empty")
    cursor = _Cursor(file, size)
    if size < len(_MAGIC) or cursor.take(len(_MAGIC)) != _MAGIC:
        raise HeaderDamaged("is not a GGUF file")
    version = cursor.u32()
    if version not in _VERSIONS:
        if version & 0xFFFF == 0 and version:
            raise HeaderDamaged("is a big-endian GGUF file, which this build does not read")
        raise HeaderDamaged(f"has GGUF version {version}; this build reads versions 2 and 3")
    tensors, pairs = cursor.u64(), cursor.u64()
    if tensors > _MAX_TENSORS or pairs > _MAX_PAIRS:
        raise HeaderDamaged(f"is damaged: its header counts {tensors} tensors and {pairs} pairs")
    values: dict[str, Scalar] = {}
    lists: dict[str, tuple[int, ...]] = {}
    for _ in range(pairs):
        key = _as_text(cursor.string(_MAX_NAME))
        type_ = cursor.u32()
        if type_ == _STRING:
            # a template over the bound is stepped over: llama.cpp would take it, a renderer should not
            text = cursor.string_or_skip(_MAX_KEPT_TEXT)
            if text is not None:
                values[key] = _as_text(text)
        elif type_ == _ARRAY:
            items = _array(cursor)
            if items is not None:
                lists[key] = items
        else:
            values[key] = cursor.scalar(type_)
    end = _data_end(cursor, tensors, values.get("general.alignment", 32))
    if end > size:
        raise HeaderDamaged(f"is truncated: it has {size} bytes of {end}")
    return Header(version, values, lists, tensors)


def _array(cursor: _Cursor) -> tuple[int, ...] | None:
    type_, count = cursor.u32(), cursor.u64()
    if count > _MAX_ITEMS:
        raise HeaderDamaged(f"is damaged: its header holds an array of {count} items")
    if type_ == _STRING:
        cursor.skip_strings(count)
        return None
    form = _SCALARS.get(type_)
    if form is None:
        raise HeaderDamaged(f"is damaged: its header holds an array of the unknown type {type_}")
    if type_ not in _INTEGERS or count > _MAX_KEPT_ITEMS:
        cursor.skip(count * form.size)
        return None
    return tuple(number for (number,) in form.iter_unpack(cursor.take(count * form.size)))


def _data_end(cursor: _Cursor, tensors: int, alignment: Scalar) -> int:
    """Where the last byte of the last tensor should be; reads the tensor directory."""
    if not isinstance(alignment, int) or alignment <= 0 or alignment & (alignment - 1):
        raise HeaderDamaged(f"is damaged: its alignment is {alignment}")
    most = 0
    for _ in range(tensors):
        cursor.skip(cursor.u64())
        dimensions = cursor.u32()
        if dimensions > _MAX_DIMENSIONS:
            raise HeaderDamaged(f"is damaged: a tensor has {dimensions} dimensions")
        elements = 1
        for _ in range(dimensions):
            elements *= cursor.u64()
        type_, offset = cursor.u32(), cursor.u64()
        per_block, block_bytes = _BLOCKS.get(type_, (1, 0))
        most = max(most, offset + elements // per_block * block_bytes)
    start = -(-cursor.position // alignment) * alignment
    return start + most if tensors else 0


def _as_text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


class _Cursor:
    """Reads forward through a file of known size, a chunk at a time; past its end it raises `HeaderDamaged`."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        self._size = size
        self._buffer = b""
        self._start = 0  # where in the file the buffer begins
        self._at = 0  # where in the buffer the cursor is

    @property
    def position(self) -> int:
        return self._start + self._at

    def take(self, count: int) -> bytes:
        end = self._at + count
        if end > len(self._buffer):
            self._fill(count)
            end = count
        data = self._buffer[self._at : end]
        self._at = end
        return data

    def skip(self, count: int) -> None:
        if self._at + count <= len(self._buffer):
            self._at += count
            return
        if count > self._size - self.position:
            raise self._cut()
        self._start = self.position + count
        self._buffer, self._at = b"", 0
        self._file.seek(self._start)

    def u32(self) -> int:
        return int.from_bytes(self.take(4), "little")

    def u64(self) -> int:
        return int.from_bytes(self.take(8), "little")

    def scalar(self, type_: int) -> Scalar:
        form = _SCALARS.get(type_)
        if form is None:
            raise HeaderDamaged(f"is damaged: its header holds a value of the unknown type {type_}")
        value: int | float | bool = form.unpack(self.take(form.size))[0]
        return value

    def string(self, most: int) -> bytes:
        length = self.u64()
        if length > most:
            raise HeaderDamaged(f"is damaged: its header holds a key of {length} bytes")
        return self.take(length)

    def string_or_skip(self, most: int) -> bytes | None:
        length = self.u64()
        if length <= most:
            return self.take(length)
        self.skip(length)
        return None

    def skip_strings(self, count: int) -> None:
        # a vocabulary has some 500,000 of these: the loop stays inside one buffer while it can
        unpack = _LENGTH.unpack_from
        while count:
            buffer, at, last = self._buffer, self._at, len(self._buffer) - 8
            while count and at <= last:
                after = at + 8 + unpack(buffer, at)[0]
                if after > last + 8:
                    break
                at = after
                count -= 1
            self._at = at
            if count:
                self.skip(self.u64())
                count -= 1

    def _fill(self, count: int) -> None:
        if count > self._size - self.position:
            raise self._cut()
        rest = self._buffer[self._at :]
        self._start += self._at
        self._buffer = rest + self._file.read(max(count, _CHUNK) - len(rest))
        self._at = 0
        if len(self._buffer) < count:
            raise self._cut()

    def _cut(self) -> HeaderDamaged:
        return HeaderDamaged(f"is truncated: its header goes on past the {self._size} bytes of the file")
