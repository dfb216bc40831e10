"""The house stays as it is drawn: imports go down, rooms stay small, nothing heavy is pulled in."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
MOST_LINES = 400


def sources():
    for folder in ("superfluid", "cli", "clients"):
        yield from (ROOT / folder).rglob("*.py")


def test_imports_go_down():
    run = subprocess.run(
        [Path(sys.executable).parent / "lint-imports", "--no-cache"], cwd=ROOT, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_rooms_stay_small():
    long = {str(path.relative_to(ROOT)): lines for path in sources() if (lines := _lines(path)) > MOST_LINES}
    assert not long


def test_every_module_says_what_it_is():
    silent = [str(path.relative_to(ROOT)) for path in sources() if not _docstring(path)]
    assert not silent


def test_nothing_is_left_behind():
    left = re.compile(r"TODO|FIXME|XXX|raise NotImplementedError|pragma: no cover")
    found = [str(path.relative_to(ROOT)) for path in sources() if left.search(path.read_text())]
    assert not found


def _lines(path):
    return len(path.read_text().splitlines())


def _docstring(path):
    text = path.read_text()
    return not text.strip() or text.startswith('"""')
