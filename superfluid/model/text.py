"""Bytes of tokens into text, a piece at a time.

A token may end in the middle of a character; the rest comes with a later one. Text handed out is final: it never
ends in half a character, and an invalid run of bytes shows as one U+FFFD, however it was cut.
"""

from __future__ import annotations

import codecs
import re

_REPLACEMENT = "\ufffd"
# "surrogateescape" turns each invalid byte into one of these, which valid UTF-8 can never give.
_INVALID = re.compile("[\udc80-\udcff]+")


class TextStream:
    """Incremental UTF-8 for one turn.

    To restore the stream of an open turn, feed it the pieces of the turn so far and drop what comes back.
    """

    __slots__ = ("_decoder", "_in_run")

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._in_run = False

    def feed(self, piece: bytes) -> str:
        """The text that `piece` completes; incomplete bytes at its end wait for the next one."""
        return self._visible(self._decoder.decode(piece))

    def flush(self) -> str:
        """What is still held, as text: "" or one U+FFFD. The stream is as new afterwards."""
        rest = self._visible(self._decoder.decode(b"", True))
        self._decoder.reset()
        self._in_run = False
        return rest

    def _visible(self, text: str) -> str:
        if not text:
            return text
        if self._in_run and (more := _INVALID.match(text)) is not None:
            # the U+FFFD of this run is out already
            text = text[more.end() :]
            if not text:
                return text
        self._in_run = "\udc80" <= text[-1] <= "\udcff"
        return _INVALID.sub(_REPLACEMENT, text)
