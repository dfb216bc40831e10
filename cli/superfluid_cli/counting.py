"""Numbers of things in words."""

from __future__ import annotations


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """`1 token`, `2 tokens`; a noun whose plural has no mere s after it brings its own."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"
