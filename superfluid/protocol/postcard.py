"""The binary encoding: postcard 1.x (spec: wire-facts, section 1).

Integers wider than a byte are LEB128, strings and sequences carry a count, options a flag byte, enums a variant
index. Encoders and decoders are compiled once a type from its annotations. A decoder takes any bytes and returns a
value or raises `DecodeError`, in time and memory bounded by the length of its input.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable
from typing import Any

from superfluid.protocol import shapes
from superfluid.protocol.errors import DecodeError
from superfluid.protocol.responses import StoreId

Encoder = Callable[[Any, bytearray], None]
Decoder = Callable[["_Cursor"], Any]

MAX_DEPTH = 32
"""Records nest (`Rerooted` holds records); honest ones by one level."""

_SINGLE = struct.Struct("<f")


def encode(annotation: Any, value: Any) -> bytes:
    """`value` as postcard bytes of the type `annotation`. Raises ValueError for numbers that do not fit."""
    out = bytearray()
    _encoder(annotation)(value, out)
    return bytes(out)


def decode(annotation: Any, data: bytes) -> Any:
    """The value of type `annotation` at the start of `data`; what follows it is ignored. Raises DecodeError."""
    cursor = _Cursor(data)
    return _decoder(annotation)(cursor)


class _Cursor:
    __slots__ = ("at", "data", "depth")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.depth = 0

    def take(self, count: int) -> bytes:
        end = self.at + count
        if end > len(self.data):
            raise DecodeError(f"ends at byte {len(self.data)}, {end - len(self.data)} bytes short")
        piece = self.data[self.at : end]
        self.at = end
        return piece

    def byte(self) -> int:
        at = self.at
        if at >= len(self.data):
            raise DecodeError(f"ends at byte {len(self.data)}, 1 byte short")
        self.at = at + 1
        return self.data[at]

    def varint(self, bits: int) -> int:
        value = self.byte()
        if value < 0x80:
            return value
        value &= 0x7F
        shift = 7
        while shift < bits:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value >> bits:
                    break
                return value
            shift += 7
        raise DecodeError(f"byte {self.at}: number over {bits} bits")

    def count(self) -> int:
        """A length, of items that take at least a byte each: so it is checked before anything is allocated."""
        count = self.varint(64)
        if count > len(self.data) - self.at:
            raise DecodeError(f"byte {self.at}: {count} items announced, {len(self.data) - self.at} bytes left")
        return count

    def enter(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise DecodeError(f"byte {self.at}: nested deeper than {MAX_DEPTH}")


def _put_varint(value: int, out: bytearray) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


@functools.cache
def _encoder(annotation: Any) -> Encoder:
    if (scalar := shapes.scalar_of(annotation)) is not None:
        return _float_encoder if scalar.bits == 0 else _integer_encoder(scalar.name, scalar.maximum)
    if (inner := shapes.optional_of(annotation)) is not None:
        return _optional_encoder(_later_encoder(inner))
    if shapes.is_sum(annotation):
        indices = {
            variant: (index, _later_encoder(variant)) for index, variant in shapes.indices_of(annotation).items()
        }

        def put_sum(value: Any, out: bytearray) -> None:
            index, put = indices[type(value)]
            _put_varint(index, out)
            put(value, out)

        return put_sum
    if shapes.is_enum(annotation):
        places = {member: index for index, member in enumerate(annotation)}
        return lambda value, out: _put_varint(places[value], out)
    if (item := shapes.vector_of(annotation)) is not None:
        return _vector_encoder(item)
    if (items := shapes.tuple_of(annotation)) is not None:
        puts = tuple(_later_encoder(item) for item in items)

        def put_tuple(value: tuple[Any, ...], out: bytearray) -> None:
            for put, part in zip(puts, value, strict=True):
                put(part, out)

        return put_tuple
    if annotation is StoreId:
        return lambda value, out: out.extend(value.value)
    if shapes.is_record(annotation):
        fields = tuple((field.attribute, _later_encoder(field.annotation)) for field in shapes.fields_of(annotation))

        def put_record(value: Any, out: bytearray) -> None:
            for attribute, put in fields:
                put(getattr(value, attribute), out)

        return put_record
    if annotation is str:
        return lambda value, out: _put_bytes(value.encode(), out)
    if annotation is bytes:
        return _put_bytes
    if annotation is bool:
        return lambda value, out: out.append(1 if value else 0)
    raise TypeError(f"no wire form for {annotation!r}")


def _later_encoder(annotation: Any) -> Encoder:
    """Types may contain themselves, so only leaves are compiled at once."""
    if shapes.is_sum(annotation) or shapes.is_record(annotation):
        return lambda value, out: _encoder(annotation)(value, out)
    return _encoder(annotation)


def _put_bytes(value: bytes, out: bytearray) -> None:
    _put_varint(len(value), out)
    out.extend(value)


def _float_encoder(value: float, out: bytearray) -> None:
    out.extend(_SINGLE.pack(value))


def _integer_encoder(name: str, maximum: int) -> Encoder:
    def put_byte(value: int, out: bytearray) -> None:
        out.append(value)

    def put(value: int, out: bytearray) -> None:
        if not 0 <= value <= maximum:
            raise ValueError(f"{value} is no {name}")
        _put_varint(value, out)

    return put_byte if maximum == 0xFF else put


def _optional_encoder(put: Encoder) -> Encoder:
    def put_optional(value: Any, out: bytearray) -> None:
        if value is None:
            out.append(0)
        else:
            out.append(1)
            put(value, out)

    return put_optional


def _vector_encoder(item: Any) -> Encoder:
    if (scalar := shapes.scalar_of(item)) is not None and scalar.bits >= 32:
        return _integers_encoder(scalar.name, scalar.maximum)
    put = _later_encoder(item)

    def put_vector(value: tuple[Any, ...], out: bytearray) -> None:
        _put_varint(len(value), out)
        for part in value:
            put(part, out)

    return put_vector


def _integers_encoder(name: str, maximum: int) -> Encoder:
    """Of numbers by the million, such as token ids: without a call for each."""

    def put_integers(value: tuple[int, ...], out: bytearray) -> None:
        _put_varint(len(value), out)
        if value and not 0 <= min(value) <= max(value) <= maximum:
            wrong = next(number for number in value if not 0 <= number <= maximum)
            raise ValueError(f"{wrong} is no {name}")
        put = out.append
        for number in value:
            while number > 0x7F:
                put(number & 0x7F | 0x80)
                number >>= 7
            put(number)

    return put_integers


@functools.cache
def _decoder(annotation: Any) -> Decoder:
    if (scalar := shapes.scalar_of(annotation)) is not None:
        if scalar.bits == 0:
            return lambda cursor: float(_SINGLE.unpack(cursor.take(4))[0])
        if scalar.bits == 8:
            return _Cursor.byte
        bits = scalar.bits
        return lambda cursor: cursor.varint(bits)
    if (inner := shapes.optional_of(annotation)) is not None:
        get = _later_decoder(inner)
        return lambda cursor: get(cursor) if _flag(cursor) else None
    if shapes.is_sum(annotation):
        return _sum_decoder(annotation)
    if shapes.is_enum(annotation):
        members = tuple(annotation)

        def get_enum(cursor: _Cursor) -> Any:
            index = cursor.varint(32)
            if index >= len(members):
                raise DecodeError(f"byte {cursor.at}: {annotation.__name__} has no variant {index}")
            return members[index]

        return get_enum
    if (item := shapes.vector_of(annotation)) is not None:
        if (number := shapes.scalar_of(item)) is not None and number.bits >= 32:
            return _integers_decoder(number.bits)
        get_item = _later_decoder(item)
        return lambda cursor: tuple([get_item(cursor) for _ in range(cursor.count())])
    if (items := shapes.tuple_of(annotation)) is not None:
        gets = tuple(_later_decoder(item) for item in items)
        return lambda cursor: tuple([get(cursor) for get in gets])
    if annotation is StoreId:
        return lambda cursor: StoreId(cursor.take(16))
    if shapes.is_record(annotation):
        return _record_decoder(annotation)
    if annotation is str:
        return _text
    if annotation is bytes:
        return lambda cursor: cursor.take(cursor.count())
    if annotation is bool:
        return _flag
    raise TypeError(f"no wire form for {annotation!r}")


def _integers_decoder(bits: int) -> Decoder:
    """As `_integers_encoder`: numbers of up to three bytes are read here, whatever is longer or cut short as ever."""

    def get_integers(cursor: _Cursor) -> tuple[int, ...]:
        count = cursor.count()
        data, at, last = cursor.data, cursor.at, len(cursor.data) - 3
        found: list[int] = []
        put = found.append
        for _ in range(count):
            if at <= last:
                one = data[at]
                if one < 0x80:
                    at += 1
                    put(one)
                    continue
                two = data[at + 1]
                if two < 0x80:
                    at += 2
                    put(one & 0x7F | two << 7)
                    continue
                three = data[at + 2]
                if three < 0x80:
                    at += 3
                    put(one & 0x7F | (two & 0x7F) << 7 | three << 14)
                    continue
            cursor.at = at
            put(cursor.varint(bits))
            at = cursor.at
        cursor.at = at
        return tuple(found)

    return get_integers


def _later_decoder(annotation: Any) -> Decoder:
    if shapes.is_sum(annotation) or shapes.is_record(annotation):
        return lambda cursor: _decoder(annotation)(cursor)
    return _decoder(annotation)


def _flag(cursor: _Cursor) -> bool:
    byte = cursor.byte()
    if byte > 1:
        raise DecodeError(f"byte {cursor.at - 1}: {byte:#04x} is neither 0 nor 1")
    return byte == 1


def _text(cursor: _Cursor) -> str:
    start = cursor.at
    try:
        return cursor.take(cursor.count()).decode()
    except UnicodeDecodeError as fault:
        raise DecodeError(f"byte {start}: text is not UTF-8 ({fault.reason})") from None


def _sum_decoder(annotation: Any) -> Decoder:
    name = shapes.SUMS[annotation]
    gets = {index: _later_decoder(variant) for index, variant in shapes.indices_of(annotation).items()}

    def get_sum(cursor: _Cursor) -> Any:
        index = cursor.varint(32)
        get = gets.get(index)
        if get is None:
            raise DecodeError(f"byte {cursor.at}: {name} has no variant {index}")
        cursor.enter()
        value = get(cursor)
        cursor.depth -= 1
        return value

    return get_sum


def _record_decoder(annotation: Any) -> Decoder:
    fields = tuple((_later_decoder(field.annotation), field.has_default) for field in shapes.fields_of(annotation))
    # Of a record that grew, an old peer sends the front only (spec: wire-facts, section 5, StoreId).
    tail_may_miss = fields[-1][1] if fields and annotation.__name__ == "SessionInspection" else False

    def get_record(cursor: _Cursor) -> Any:
        if not tail_may_miss:
            return annotation(*[get(cursor) for get, _ in fields])
        values = [get(cursor) for get, _ in fields[:-1]]
        if cursor.at < len(cursor.data):
            values.append(fields[-1][0](cursor))
        return annotation(*values)

    return get_record
