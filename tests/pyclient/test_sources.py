"""The client runs where its users are: on Python 3.9, with nothing installed."""

import ast
import sys

import pytest
import superfluid_client

from tests.pyclient.conftest import SOURCES

FILES = sorted(path for folder in ("superfluid_client", "examples") for path in (SOURCES / folder).rglob("*.py"))
NEWER_THAN_3_9 = {"tomllib", "annotationlib", "compression"}
ITS_OWN = {"superfluid_client"}

named = pytest.mark.parametrize("path", FILES, ids=[path.name for path in FILES])


@named
def test_python_3_9_reads_it(path):
    ast.parse(path.read_text(), feature_version=(3, 9))


@named
def test_annotations_are_not_evaluated(path):
    tree = ast.parse(path.read_text())
    futures = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    assert futures or not any(isinstance(node, ast.AnnAssign | ast.FunctionDef) for node in ast.walk(tree))


@named
def test_nothing_beyond_the_standard_library(path):
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {name.name.partition(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            names.add(node.module.partition(".")[0])
    assert names <= (set(sys.stdlib_module_names) - NEWER_THAN_3_9) | ITS_OWN


def test_what_it_exports():
    codes = {"SYSTEM": 0, "USER": 1, "ASSISTANT": 2, "TOOL": 3, "TEXT": 0, "REASONING": 1, "TOOL_CALL": 2}
    nouns = {"Client", "Session", "Stream", "Sampling", "Event", "Chunk", "Reply", "ToolCall"}
    others = {"SuperfluidError", "SessionBusy", "drop_events", "replace_events", "__version__"}
    assert set(superfluid_client.__all__) == nouns | others | codes.keys()
    assert {name: getattr(superfluid_client, name) for name in codes} == codes
    assert superfluid_client.__version__ == "0.1.0"
