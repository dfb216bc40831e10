"""What has the shape of a secret does not get through, however it is cut; what has not, does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from superfluid_cli.redaction import MASK, redact, redact_run
from tests.cli.secret_shapes import HARMLESS, texts

TEXTS = texts()


def leaks(shown: str, secret: str, size: int = 8) -> list[str]:
    """Parts of a secret, so long, that are shown."""
    lines = [line for line in secret.splitlines() if "PRIVATE KEY" not in line] if "\n" in secret else [secret]
    pieces = {line[at : at + size] for line in lines for at in range(max(1, len(line) - size + 1))}
    return sorted(piece for piece in pieces if piece in shown)


@pytest.mark.parametrize("name", TEXTS)
def test_it_is_taken_out(name: str) -> None:
    text, secret = TEXTS[name]
    shown = redact(text)
    assert MASK in shown
    assert not leaks(shown, secret)


@pytest.mark.parametrize("name", TEXTS)
def test_it_is_taken_out_however_it_is_cut(name: str) -> None:
    text, _secret = TEXTS[name]
    whole = redact(text)
    for size in (1, 2, 3, 7, 13, 40):
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        clean = redact_run(pieces)
        assert len(clean) == len(pieces)
        assert "".join(clean) == whole


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_no_secret_stays(text: str) -> None:
    assert redact(text) == text


def test_what_stands_around_stays() -> None:
    assert redact("a password=hunter2 b") == f"a password={MASK} b"
    assert redact("https://u:p@h/x") == f"https://u:{MASK}@h/x"
    assert redact("Authorization: Bearer abcdefgh123 and more") == f"Authorization: Bearer {MASK} and more"


@given(st.lists(st.text("sk-eyJ.A1 \"'\\:=pwd@/\n", max_size=12), max_size=12))
def test_pieces_are_as_the_whole(pieces: list[str]) -> None:
    clean = redact_run(pieces)
    assert len(clean) == len(pieces)
    assert "".join(clean) == redact("".join(pieces))
    assert redact_run([]) == []


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("eyJ-", 50_000),
        ("sk-", 70_000),
        ("://a:", 40_000),
        ("password", 25_000),
        ('password=\\"', 20_000),
        ("<secret ", 25_000),
        ("-----BEGIN PRIVATE KEY-----", 7_000),
        ("a-", 100_000),
        ("-", 200_000),
        ("\\", 200_000),
    ],
)
def test_nothing_takes_for_ever(text: str, count: int) -> None:
    assert redact_run([text, text * count])
