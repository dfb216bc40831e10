"""What the model sees of structured blocks (wire-facts 8.6)."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from superfluid.protocol.codes import BlockKind
from superfluid.protocol.records import Block
from superfluid.protocol.refusals import BadBlockKind, BadRole
from superfluid.sessions import blocks


@pytest.mark.parametrize(
    ("kind", "fields", "text"),
    [
        (1, {"path": "a.py", "diff": "-x\n+y\n"}, "```diff\n# a.py\n-x\n+y\n```"),
        (1, {"diff": "+````\n"}, "`````diff\n# \n+````\n`````"),
        (1, {}, ""),
        (2, {"title": "T", "content": "body"}, "[artifact: T]\nbody"),
        (3, {"title": "T", "url": "http://x"}, "[citation: T, http://x]"),
        (3, {"title": "T", "url": "http://x", "quote": "one\ntwo"}, "[citation: T, http://x]\n> one\n> two"),
        (3, {"url": 7}, ""),
        (4, {"path": "a", "message": "b", "title": "c"}, ""),
        (5, {"severity": "error", "message": "bad"}, "[error] bad"),
        (5, {"severity": "error", "message": "bad", "path": "a.py", "line": 12}, "[error] a.py:12: bad"),
        (5, {"message": "bad", "path": "a.py", "line": "12"}, "[diagnostic] a.py:0: bad"),
        (5, {"message": "bad", "path": "a.py", "line": True}, "[diagnostic] a.py:0: bad"),
        (6, {"path": "src/x"}, "@src/x"),
        (6, {}, ""),
        (7, {"blob": "0", "path": "x"}, ""),
    ],
)
def test_projections(kind, fields, text):
    assert blocks.project(kind, json.dumps(fields)) == text


@pytest.mark.parametrize(("kind", "field"), [(1, "diff"), (2, "content")])
def test_long_bodies_are_cut_at_a_character(kind, field):
    fits = "é" * (blocks.MOST_BYTES // 2)
    assert blocks.TRUNCATED not in blocks.project(kind, json.dumps({field: fits}))
    shown = blocks.project(kind, json.dumps({field: "x" + fits}))
    assert "x" + fits[:-1] + blocks.TRUNCATED in shown
    assert shown.endswith("```") is (kind == 1)


@pytest.mark.parametrize("payload", ["", "{", "[]", "3", "null", '"x"', "[" * 100_000, "1" * 5000, '{"path": 1}'])
def test_a_payload_that_says_nothing(payload):
    assert {blocks.project(kind, payload) for kind in BlockKind} == {""}


def test_roles_come_before_kinds():
    with pytest.raises(BadRole, match="unknown message role 4"):
        blocks.check(4, 9)
    for kind in (0, 8):
        with pytest.raises(BadBlockKind, match=f"unknown block kind {kind}"):
            blocks.check(3, kind)
        with pytest.raises(BadBlockKind):
            blocks.project(kind, "{}")
    assert blocks.block(3, 6, "{", (1,)) == Block(3, 6, "{", (1,), 2)


VALUES = st.text() | st.integers() | st.none() | st.lists(st.integers())
FIELDS = ("path", "diff", "title", "content", "url", "quote", "severity", "message", "line")


@given(st.sampled_from(BlockKind), st.dictionaries(st.sampled_from(FIELDS), VALUES) | st.text())
def test_any_payload_has_a_projection(kind, payload):
    text = blocks.project(kind, payload if isinstance(payload, str) else json.dumps(payload))
    assert isinstance(text, str)
