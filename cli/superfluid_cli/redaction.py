"""Strings that have the shape of secrets, taken out of texts. A net with small holes: it knows shapes, not secrets.

Rather too much than too little is taken. Each pattern is matched in time that grows with the text's length alone, up
to a bound on how far one match may look.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

MASK = "[redacted]"

_START = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrtbf])|(?<=\\u[0-9A-Fa-f]{4}))"
"""Where a word begins, also right after an escape in JSON text."""

_WORDS = (
    r"(?:pass(?:word|wd|phrase|code)|pwd|secret|credential|token(?!s\b|s[_-]|iz)"
    r"|(?:api|access|private|account|auth|signing|encryption)[_-]?key)"
)
_TO = r"""["'\\]{0,8}\s{0,20}(?:=>|:=|[:=]|\\u003[adAD]|%3[adAD])\s{0,20}"""
_VALUE = (
    r"""(?P<secret>(?P<quote>\\+["'])(?:(?!(?<!\\)(?P=quote)).)*(?<!\\)(?P=quote)"""
    r"""|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|["'][^\n]*|[^\s"'`]+)"""
)
"""Something in quotes, also in the escaped ones of JSON in JSON, or all up to the next blank or quote."""

_PATTERNS = tuple(
    re.compile(pattern, re.DOTALL)
    for pattern in (
        # keys of services, by their prefixes
        _START + r"(?:sk|pk|rk)[-_][A-Za-z0-9_-]{16,}",
        _START + r"(?:AKIA|ASIA|AGPA|AIDA|AROA|ABIA|ACCA)[A-Z0-9]{16,}",
        _START + r"(?:gh[pousr]_|github_pat_|glpat-|npm_|hf_|pypi-|dop_v1_|ya29\.|SG\.)[A-Za-z0-9_.-]{16,}",
        _START + r"xox[a-z]-[A-Za-z0-9-]{10,}",
        _START + r"AIza[A-Za-z0-9_-]{30,}",
        r"hooks\.slack\.com/services/(?P<secret>[A-Za-z0-9/]{8,})",
        # JSON web tokens, whole or without their signature
        _START + r"eyJ[A-Za-z0-9_-]{6,4096}\.[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*)*",
        # what a header carries
        r"(?i)bearer\s{1,20}(?P<secret>[A-Za-z0-9._~+/=:-]{8,})",
        r"(?i)authorization" + _TO + r"""["'\\]{0,8}(?:[A-Za-z]{1,20}\s{1,20})?(?P<secret>[^\s"'\\]+)""",
        r"(?i)cookie" + _TO + r"(?P<secret>[^\r\n]+)",
        # key blocks, to their end or the end of the text
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----.*?"
        r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z)",
        # passwords in addresses
        r"""://[^\s:/@"'<>]{0,256}:(?P<secret>[^\s/"'<>]{1,1024})@""",
        # a name that says so, and its value
        r"(?i)" + _WORDS + r"[\w.-]{0,40}" + _TO + _VALUE,
        r"(?i)(?<![\w-])-{1,2}[\w-]{0,40}?" + _WORDS + r"""[\w-]{0,40}["'\\]{0,8}(?:\s{1,20}|,\s{0,20})""" + _VALUE,
        r"(?i)<[\w:.-]{0,40}?" + _WORDS + r"[^<>]{0,200}>(?P<secret>[^<]+)",
        r"(?<!\S)(?:-u|--user)\s{1,20}[^\s:]{1,256}:(?P<secret>\S+)",
    )
)


def redact(text: str) -> str:
    """`text` with every such string replaced by `MASK`."""
    return redact_run([text])[0]


def redact_run(pieces: Sequence[str]) -> list[str]:
    """Pieces of one text, each without its part of the secrets in the whole, however they were cut."""
    whole = "".join(pieces)
    secrets = list(_merged(sorted(_secrets(whole))))
    clean, start = [], 0
    for piece in pieces:
        clean.append("".join(_without(whole, start, start + len(piece), secrets)))
        start += len(piece)
    return clean


def _without(whole: str, start: int, end: int, secrets: list[tuple[int, int]]) -> Iterator[str]:
    """`whole[start:end]`; the mask stands in the piece where its secret begins."""
    at = start
    for first, last in secrets:
        if last <= start or first >= end:
            continue
        yield whole[at : max(at, first)]
        if first >= start:
            yield MASK
        at = min(last, end)
    yield whole[at:end]


def _secrets(text: str) -> Iterator[tuple[int, int]]:
    for pattern in _PATTERNS:
        group = "secret" if "secret" in pattern.groupindex else 0
        for match in pattern.finditer(text):
            if match.start(group) < match.end(group):
                yield match.span(group)


def _merged(spans: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Sorted spans, those that overlap made one."""
    first, last = -1, -1
    for start, end in spans:
        if start > last:
            if last > first:
                yield first, last
            first, last = start, end
        else:
            last = max(last, end)
    if last > first:
        yield first, last
