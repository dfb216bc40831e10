"""The two demos of the Python client, again and again: forks are warm, and a killed reply goes on."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.conftest import SOURCES
from tests.support.daemon import DEADLINE
from tests.warmth.stories import filler

ROOT = Path(__file__).parents[2]
DEMOS = SOURCES / "examples"
RUNS = 10


def ran(demo, *arguments, **environment):
    done = subprocess.run(
        [sys.executable, str(DEMOS / demo), *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (SOURCES, ROOT, ROOT / "cli"))), **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=2 * DEADLINE,
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    return done.stdout


def fan_out(web, document):
    """One run on a daemon: every answer began from nine tenths of the document, at least."""
    said = ran(
        "fanout.py",
        *("--context", str(document), "--max-tokens", "24"),
        SUPERFLUID_WEB_URL=web.url,
        SUPERFLUID_WEB_TOKEN=web.token,
    )
    found = re.search(r"(\d+) of (\d+) answers started from the (\d+) tokens read once", said)
    assert found is not None, said
    warm, answers, shared = map(int, found.groups())
    assert (warm, answers) == (4, 4), said
    assert shared >= 1500
    assert said.count(", length") + said.count(", stop") == 4, said


@pytest.fixture(scope="module")
def document(tmp_path_factory):
    """About 1,550 tokens, with every model here."""
    path = tmp_path_factory.mktemp("document") / "document"
    path.write_text(filler(84))
    return path


def test_forks_of_a_document_are_warm(houses, document):
    fan_out(houses(max_context=4096), document)


@pytest.mark.heavy
@pytest.mark.timeout(1800)
def test_forks_of_a_document_are_warm_again_and_again(houses, document):
    web = houses(worker_argv=(), max_context=4096)
    for _ in range(RUNS):
        fan_out(web, document)
    web.close()


@pytest.mark.heavy
@pytest.mark.timeout(1800)
def test_the_plug_is_pulled_again_and_again(houses, tmp_path):
    program = tmp_path / "superfluid"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m superfluid_cli "$@"\n')
    program.chmod(0o755)
    web = houses()
    model = web.rpc("Status")["StatusReport"]["model_path"]
    web.close()
    for run in range(RUNS):
        arguments = ("--superfluid", str(program), "--after", str(3 + 5 * run), "--max-tokens", "80")
        said = ran("pull_the_plug.py", model, *arguments, SUPERFLUID_THREADS="1")
        # What was shown, a note, a note, what was kept and its continuation, a note.
        notes = re.split(r"\n--- (.*)\n\n", said)
        shown, kept = notes[2], re.search(r"kept (\d+) of (\d+) characters shown", notes[5])
        assert kept is not None, said
        assert len(shown) == int(kept[2])
        count = min(int(kept[1]), len(shown))
        assert notes[6][:count] == shown[:count]
        ended = re.search(r"drew (\d+) of those shown again; (\d+) tokens more, finish: (\w+)", said)
        assert ended is not None, said
        assert int(ended[1]) == max(0, int(kept[2]) - int(kept[1]))
        assert int(ended[2]) > 0
        assert ended[3] in ("stop", "length")
