"""Tables on a narrow terminal: numbers stay whole, texts give way."""

import io

from rich.console import Console

from superfluid_cli.tables import rich_table

HEADINGS = ("id", "title", "events", "name")


def drawn(rows: list[tuple[str, ...]], width: int) -> str:
    file = io.StringIO()
    Console(file=file, width=width, force_terminal=False).print(rich_table(HEADINGS, rows, ("title", "name")))
    return file.getvalue()


def test_numbers_are_never_cut() -> None:
    rows = [
        ("12345", "a title that is long enough to need lines", "678", "sess_" + "4a6d705f" * 3),
        ("6", "", "1", ""),
    ]
    for width in (30, 40, 200):
        lines = drawn(rows, width).splitlines()
        assert "id" in lines[0]
        assert "events" in lines[0]
        assert any("12345" in line and "678" in line for line in lines), width
        assert max(map(len, lines)) <= width


def test_texts_are_folded_not_lost() -> None:
    text = drawn([("1", "abcdefghijklmnop", "2", "qrstuvwxyz")], 30)
    assert {*"abcdefghijklmnopqrstuvwxyz"} <= set(text)
    assert "\u2026" not in text


def test_no_rows() -> None:
    assert drawn([], 40).split()[:4] == [*HEADINGS]
