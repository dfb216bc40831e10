"""Bytes of a pipe cut into entries, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator

LONGEST = 8 << 20
"""Bytes of the longest entry that a session takes (spec: streaming-facts, section 3)."""


class Lines:
    """Entries between separators: newlines, or NUL. Blank entries are left out; bytes that are no UTF-8 are replaced.

    An entry over LONGEST is dropped and counted in `too_long`; no more than that is ever held of it.
    """

    def __init__(self, separator: bytes = b"\n") -> None:
        self.too_long = 0
        self._separator = separator
        self._begun = bytearray()
        self._skipping = False

    @property
    def begun(self) -> bool:
        """Whether an entry has come in part."""
        return self._skipping or bool(self._begun.strip())

    def feed(self, data: bytes) -> Iterator[str]:
        """The entries that `data` completes."""
        *ended, rest = data.split(self._separator)
        for piece in ended:
            self._add(piece)
            yield from self._cut()
        self._add(rest)

    def end(self) -> Iterator[str]:
        """The last entry, which nothing separates from the end."""
        yield from self._cut()

    def _add(self, piece: bytes) -> None:
        if not self._skipping:
            self._begun += piece
            if len(self._begun) > LONGEST:
                self._begun = bytearray()
                self._skipping = True
                self.too_long += 1

    def _cut(self) -> Iterator[str]:
        if self._skipping:
            self._skipping = False
            return
        entry = bytes(self._begun)
        self._begun = bytearray()
        if self._separator == b"\n":
            entry = entry.removesuffix(b"\r")
        if entry.strip():
            yield entry.decode(errors="replace")
