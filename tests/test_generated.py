"""Man pages and completions are what the command line says today, and they work."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
GENERATOR = ROOT / "man" / "generate.py"
DEADLINE = 60


@pytest.fixture(scope="module")
def generator():
    spec = importlib.util.spec_from_file_location("generate", GENERATOR)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def files(generator):
    return generator.generated()


def test_nothing_is_stale():
    odd = {"COLUMNS": "20", "TERM": "dumb", "SUPERFLUID_MAX_TOKENS": "9", "SUPERFLUID_SOCKET": "/x", "HOME": "/y"}
    run = subprocess.run(
        [sys.executable, GENERATOR, "--check"],
        env=os.environ | odd,
        cwd="/",
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")


def test_what_is_stale_is_shown(generator, files, tmp_path):
    generator.write(files, tmp_path)
    assert list(generator.stale(files, tmp_path)) == []
    (tmp_path / "man" / "superfluid.1").write_text(files[Path("man/superfluid.1")].replace("serve", "server"))
    (tmp_path / "completions" / "superfluid.zsh").unlink()
    (tmp_path / "man" / "superfluid-gone.1").touch()
    said = "".join(generator.stale(files, tmp_path))
    assert "--- man/superfluid.1\n" in said
    assert "--- completions/superfluid.zsh\n" in said
    assert said.endswith("man/superfluid-gone.1: nothing generates it\n")
    generator.write(files, tmp_path)
    assert list(generator.stale(files, tmp_path)) == []


def test_wrong_words(generator, capsys):
    assert generator.main(["--chekc"]) == 2
    assert capsys.readouterr().err.startswith("usage:")


def test_every_command_has_a_place(generator, files):
    names = {path.name for path in files}
    assert {"superfluid.1", "superfluid-serve.1", "superfluid-session.1", "superfluid-status.1"} <= names
    assert {"superfluid.bash", "superfluid.zsh", "superfluid.fish"} <= names
    page = files[Path("man/superfluid-session.1")]
    for command in ("new", "fork", "purge", "check"):
        assert f'.SS "superfluid session {command}"' in page
    assert "inspect" not in page
    assert set(generator.EXITS) == set(generator.Exit)


def test_nothing_leaks_into_roff(files):
    """A line that begins with a dot or an apostrophe would be a request; each request is one of ours."""
    known = {".TH", ".SH", ".SS", ".PP", ".TP", ".BR", '.\\"'}
    for path, page in files.items():
        if path.suffix == ".1":
            assert page.isascii()
            assert all(line and not line.startswith("'") for line in page.splitlines()), path
            assert {line.split()[0] for line in page.splitlines() if line.startswith(".")} <= known, path


def test_nobody_has_to_guess_how_a_summary_ends():
    help_ = [sys.executable, "-m", "superfluid_cli", "session", "--help"]
    shown = subprocess.run(
        help_, env=os.environ | {"COLUMNS": "60"}, capture_output=True, text=True, timeout=DEADLINE
    )
    assert "..." not in shown.stdout.replace("[ARGS]...", "")
    assert "Print a session's events from event N on, then new ones as they are committed, until Ctrl-C." in " ".join(
        shown.stdout.split()
    )


def test_groff_has_no_complaint(files):
    groff = shutil.which("groff")
    pages = [ROOT / path for path in files if path.suffix == ".1" and groff is not None]
    for page in pages:
        run = subprocess.run([groff, "-ww", "-man", "-z", page], capture_output=True, text=True, timeout=DEADLINE)
        assert (run.returncode, run.stderr) == (0, "")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["ses"], {"session"}),
        (["st"], {"status", "stop"}),
        (["session", "fo"], {"fork"}),
        (["session", "ren"], {"rename"}),
        (["session", "new", "--see"], {"--seed"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bash_completes(tmp_path, words, expected):
    program = tmp_path / "superfluid"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m superfluid_cli "$@"\n')
    program.chmod(0o700)
    script = f"""
        source {ROOT}/completions/superfluid.bash || exit 9
        COMP_WORDS=(superfluid {" ".join(words)})
        COMP_CWORD={len(words)}
        complete -p superfluid | grep -q -- "-F _superfluid_completion superfluid" || exit 8
        _superfluid_completion superfluid {words[-1]} {(["superfluid", *words])[-2]}
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    run = subprocess.run(
        ["bash", "--norc", "-c", script],
        env=os.environ | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    assert (run.returncode, run.stderr) == (0, "")
    assert set(run.stdout.split()) == expected
