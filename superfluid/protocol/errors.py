"""What decoding may raise: one type, whatever the bytes."""

from __future__ import annotations


class DecodeError(ValueError):
    """The peer sent something that is no value of the expected type. The text names the place and the fault.

    Not meant for values of our own that cannot be encoded: those are bugs and raise what Python raises.
    """


class FrameTooLong(DecodeError):
    """A length prefix over the limit: the stream cannot be followed any further."""
