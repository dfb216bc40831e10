"""Frames on a byte stream: a u32 little-endian length, then that many bytes. No sockets here."""

from __future__ import annotations

from collections.abc import Iterator

from superfluid.protocol.errors import FrameTooLong

MAX_FRAME = 64 << 20
"""Longest payload accepted, in bytes (spec: wire-facts, section 1)."""

_PREFIX = 4


def frame(payload: bytes) -> bytes:
    """`payload` with its length in front. Raises ValueError where no reader would take it."""
    if len(payload) > MAX_FRAME:
        raise ValueError(f"{len(payload)} bytes do not fit a frame of {MAX_FRAME}")
    return len(payload).to_bytes(_PREFIX, "little") + payload


class FrameReader:
    """Cuts a byte stream into payloads, whatever the pieces it arrives in.

    `feed` takes bytes; `frames` yields the payloads that are complete. A length over `MAX_FRAME` raises FrameTooLong
    as soon as the prefix is there, and the reader is of no further use.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()

    @property
    def pending(self) -> int:
        """Bytes that belong to a frame still incomplete."""
        return len(self._buffer)

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def frames(self) -> Iterator[bytes]:
        while (payload := self.next_frame()) is not None:
            yield payload

    def next_frame(self) -> bytes | None:
        """The next complete payload, None until more bytes come."""
        if len(self._buffer) < _PREFIX:
            return None
        length = int.from_bytes(self._buffer[:_PREFIX], "little")
        if length > MAX_FRAME:
            raise FrameTooLong(f"a frame of {length} bytes; the longest accepted is {MAX_FRAME}")
        end = _PREFIX + length
        if len(self._buffer) < end:
            return None
        payload = bytes(self._buffer[_PREFIX:end])
        del self._buffer[:end]
        return payload
