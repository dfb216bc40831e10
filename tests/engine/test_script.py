"""What the fake model says by a script: a function of the tokens so far, and of nothing else."""

import json

import pytest

from superfluid.engine.backend import LoadError
from superfluid.engine.fake_model import FakeModel
from superfluid.engine.script import Script


@pytest.fixture
def model(tmp_path):
    lines = [
        {"after": [1, 2], "say": [5, 6, 7, 2]},
        {"after": [9, 1, 2], "say": [8, 2]},
        {"after": [4], "say": [4, 4, 5]},
    ]
    path = tmp_path / "script"
    path.write_text(json.dumps(lines))
    return FakeModel.parse(f"vocabulary=600,low=300,script={path}")


def say(model, *tokens, most=9):
    """What it says up to the end token, or to its first noise."""
    said: list[int] = []
    while len(said) < most and (token := model.oracle((*tokens, *said), None)) < 300:
        said.append(token)
        if token == model.end:
            break
    return said


def test_replies(model):
    assert say(model, 3, 1, 2) == [5, 6, 7, 2]
    assert say(model, 9, 1, 2) == [8, 2]
    assert say(model, 1, 2, 5, 6) == [7, 2]
    assert say(model, 3, 4) == [4, 4, 5]
    assert say(model, 3) == []
    assert model.oracle((1, 2), 12345) == 5


def test_bad_scripts(tmp_path):
    with pytest.raises(LoadError, match="the script"):
        Script.read(tmp_path / "nothing")
    for text in ("{", "[3]", '[{"after": 3, "say": []}]', '[{"after": []}]'):
        (tmp_path / "script").write_text(text)
        with pytest.raises(LoadError, match="the script"):
            FakeModel.parse(f"script={tmp_path / 'script'}")
