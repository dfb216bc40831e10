from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from superfluid.protocol import ticks
from superfluid.protocol.codes import Qos
from superfluid_cli import terminal, values

MIB = values.size(1 << 20)


@pytest.mark.parametrize(
    ("parse", "text", "expected"),
    [
        (values.session_id, "0", 0),
        (values.session_id, "18446744073709551615", (1 << 64) - 1),
        (MIB, "512", 512 << 20),
        (MIB, "512MiB", 512 << 20),
        (MIB, "1.5GiB", 3 << 29),
        (MIB, " 2 gib ", 2 << 30),
        (values.duration, "60", 60.0),
        (values.duration, "30s", 30.0),
        (values.duration, "2m", 120.0),
        (values.duration, "1.5h", 5400.0),
        (values.layers, "all", ticks.ALL_LAYERS),
        (values.layers, "0", 0),
        (values.auto_or(values.layers), "auto", -1),
        (values.token_ids, "1, 2,3", (1, 2, 3)),
        (values.role, "User", 1),
        *[(values.qos, word, 0) for word in ("interactive", "interactive-chat", "interactive_chat", "0")],
        *[(values.qos, word, 1) for word in ("completion", "inline-completion", "inline_completion", "1")],
        *[(values.qos, word, 2) for word in ("agent", "foreground", "foreground-agent", "foreground_agent", "2")],
        *[(values.qos, word, 3) for word in ("background", "background-agent", "background_agent", "3")],
        (values.qos, " AGENT ", 2),
        (values.fraction(0, 1), "0.95", 0.95),
        (values.log_filter, "info,superfluid.store=debug", "info,superfluid.store=debug"),
    ],
)
def test_reads(parse: Callable[[str], Any], text: str, expected: Any) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize(
    ("parse", "texts"),
    [
        (values.session_id, ["", "-1", "x", "1.0", " 1", "1_0", "٣", "18446744073709551616", "9" * 30]),
        (values.token_count, ["0", "4294967296"]),
        (values.qos, ["", "4", "-1", "fast", "interactive chat"]),
        (MIB, ["", "x", "5XB", "-1", "1..2", "GiB", "inf", "nan", "1e3", "9" * 40]),
        (values.duration, ["", "s", "5d", "-1", "nan", "inf"]),
        (values.fraction(0, 1), ["", "nan", "inf", "-0.1", "1.1", "x"]),
        (values.token_ids, ["", "1,", "1,x", "4294967296"]),
        (values.role, ["", "tool", "0"]),
        (values.log_filter, ["", "loud", "=info", "a=b", "info,"]),
        (values.flag, ["maybe", ""]),
        (values.path, ["", "a\0b"]),
        (values.socket_path, ["/" + "x" * 200]),
        (values.auto_or(values.whole(1, 9)), ["0", "AUTO", "10"]),
    ],
)
def test_refuses_saying_what_it_expected(parse: Callable[[str], Any], texts: list[str]) -> None:
    for text in texts:
        with pytest.raises(ValueError, match="expected"):
            parse(text)


@given(st.text())
def test_shown_text_is_one_line_without_controls(text: str) -> None:
    shown = terminal.shown(text)
    assert len(shown.splitlines()) <= 1
    assert all(char.isprintable() or ord(char) >= 0xA0 for char in shown)


@given(st.text())
def test_safe_text_keeps_only_newline_and_tab_of_the_controls(text: str) -> None:
    safe = terminal.safe(text)
    assert not [char for char in safe if (ord(char) < 0x20 and char not in "\n\t") or 0x7F <= ord(char) <= 0x9F]
    assert all(char in text for char in safe)


def test_safe_text_is_the_text_where_nothing_is_wrong() -> None:
    assert terminal.safe("Grüße,\n\t„ja“ 👍") == "Grüße,\n\t„ja“ 👍"


def test_escapes_can_be_told_from_text() -> None:
    assert terminal.shown("\\n\n\x1b[0m\u202e") == "\\\\n\\n\\e[0m\\u202e"


def test_classes_have_the_names_of_the_protocol() -> None:
    assert [values.qos_name(class_) for class_ in Qos] == [class_.name.lower() for class_ in Qos]
    assert values.qos_name(9) == "9"
