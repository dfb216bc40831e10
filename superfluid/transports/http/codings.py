"""How a body may be packed (`Content-Encoding`), and how it is unpacked within bounds."""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import zstandard
from starlette.datastructures import Headers

from superfluid.transports.http.errors import ApiError

Unpacker = Callable[[bytes | bytearray, int], bytes]
"""Gives no more than so many bytes; raises `_BROKEN` on what is not packed that way."""

MOST_WINDOW = 8 << 20
"""Bytes of zstd's window, which are held beside the body (RFC 8878, 3.1.1.1.2)."""

MOST_PARTS = 1024
"""Members of gzip or frames of zstd in one body. Those that spell nothing would take long in their millions."""

_BROKEN = (OSError, EOFError, zlib.error, zstandard.ZstdError)


def packed(headers: Headers) -> str | None:
    """The coding of a body, None where it has none. Raises ApiError 415 on one that is not known here."""
    names = [name.strip().lower() for value in headers.getlist("content-encoding") for name in value.split(",")]
    names = [name for name in names if name not in ("", "identity")]
    if not names:
        return None
    if len(names) > 1 or names[0] not in _UNPACKERS:
        raise ApiError(
            f"content-encoding: expected one of {', '.join(_UNPACKERS)}, or none",
            status=415,
            param="content-encoding",
            headers={"accept-encoding": ", ".join(_UNPACKERS)},
        )
    return names[0]


def unpacked(data: bytes | bytearray, coding: str, most: int) -> bytes:
    """What a body was before it was packed, or its first `most` + 1 bytes. Raises ApiError 400."""
    try:
        return _UNPACKERS[coding](data, most + 1)
    except _BROKEN:
        raise ApiError(f"content-encoding: the body is not {coding}", param="content-encoding") from None


def _gzip(data: bytes | bytearray, most: int) -> bytes:
    return _parts(data, most, lambda: zlib.decompressobj(16 + zlib.MAX_WBITS), 1 << 16)


def _deflate(data: bytes | bytearray, most: int) -> bytes:
    """With zlib's header, as the standard has it, or without, as some clients do."""
    try:
        return _inflated(data, most, zlib.MAX_WBITS)
    except zlib.error:
        return _inflated(data, most, -zlib.MAX_WBITS)


def _inflated(data: bytes | bytearray, most: int, window: int) -> bytes:
    inflating = zlib.decompressobj(window)
    text = inflating.decompress(data, most)
    if not inflating.eof and len(text) < most:
        raise EOFError
    return text


def _zstd(data: bytes | bytearray, most: int) -> bytes:
    """A block of four bytes can spell 128 KiB, all of which come at once: so it is fed in small pieces."""
    return _parts(data, most, zstandard.ZstdDecompressor(max_window_size=MOST_WINDOW).decompressobj, 1 << 10)


def _parts(data: bytes | bytearray, most: int, unpacker: Callable[[], Any], step: int) -> bytes:
    """What the members or frames of a body spell, each of them complete. It is fed `step` bytes at once."""
    text, at = io.BytesIO(), 0
    for _ in range(MOST_PARTS):
        part = unpacker()
        while not part.eof:
            piece = data[at : at + step]
            if not piece:
                raise EOFError
            at += len(piece)
            text.write(part.decompress(piece))
            if text.tell() >= most:
                text.truncate(most)
                return text.getvalue()
        at -= len(part.unused_data)
        if at >= len(data):
            return text.getvalue()
    raise EOFError


_UNPACKERS: Mapping[str, Unpacker] = {
    "gzip": _gzip,
    "x-gzip": _gzip,
    "deflate": _deflate,
    "zstd": _zstd,
}
