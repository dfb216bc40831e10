"""What keeps a daemon from starting: one clear line on stderr, the documented exit code, and nothing lost."""

import os
import shutil
import subprocess
import sys

import pytest

from superfluid.model.gguf import locate
from superfluid.protocol import requests, responses
from tests.durability.disks import mounted, unwritable
from tests.durability.house import files_below, kinds
from tests.support.daemon import DEADLINE, create, generate, say

CLI = (sys.executable, "-m", "superfluid_cli", "serve", "--no-http", "--no-tui")


def refused(code, *arguments):
    """Run the real command to its end; its one line."""
    ended = subprocess.run(
        [*CLI, *map(str, arguments)], capture_output=True, text=True, timeout=DEADLINE, check=False
    )
    assert ended.returncode == code, ended
    assert ended.stdout == ""
    lines = [line for line in ended.stderr.splitlines() if line != "loading the model"]
    assert len(lines) == 1, ended.stderr
    assert lines[0].startswith("superfluid: ")
    return lines[0]


def refuses(daemon, code):
    """As `refused`, for a daemon of the test's own making."""
    before = daemon.said()
    daemon.start(ready=False)
    assert daemon.process.wait(DEADLINE) == code
    (line,) = daemon.said()[len(before) :].splitlines()
    return line


def places(tmp_path):
    return ("--sessions", tmp_path / "sessions", "--socket", tmp_path / "s")


def test_no_model_there(tmp_path):
    line = refused(1, tmp_path / "nothing.gguf", *places(tmp_path))
    assert "nothing.gguf" in line
    line = refused(1, tmp_path, *places(tmp_path))
    assert str(tmp_path) in line


def test_a_file_that_is_no_model(tmp_path):
    foreign = tmp_path / "foreign.gguf"
    for content in (b"", b"A letter to a friend.\n" * 1000, b"GGUF\x03\x00\x00\x00" + b"\xff" * 64):
        foreign.write_bytes(content)
        line = refused(1, foreign, *places(tmp_path))
        assert "foreign.gguf" in line
        assert foreign.read_bytes() == content


@pytest.mark.parametrize("part", [0.001, 0.999])
def test_a_model_cut_short(tmp_path, part):
    whole = locate(None)
    cut = tmp_path / "cut.gguf"
    shutil.copyfile(whole, cut)
    os.truncate(cut, int(whole.stat().st_size * part))
    line = refused(1, cut, *places(tmp_path))
    assert "cut.gguf" in line


def test_sessions_that_cannot_be_written(tmp_path):
    plain = tmp_path / "plain"
    plain.write_text("not a directory")
    for sessions in (plain, plain / "sessions"):
        line = refused(1, "--sessions", sessions, "--socket", tmp_path / "s")
        assert str(sessions) in line
    assert plain.read_text() == "not a directory"
    with unwritable(tmp_path / "disk") as sessions:
        assert str(sessions) in refused(1, "--sessions", sessions, "--socket", tmp_path / "s")


def test_a_disk_that_turned_read_only(daemons, tmp_path):
    """Sessions that are there, on a file system that nobody may write to any more."""
    disk = tmp_path / "disk"
    with mounted(disk, "size=8m") as allowed:
        daemon = daemons(disk).start()
        with daemon.client() as client:
            session = create(client)
            say(client, session, "Hello.")
            before = client.read(session)
        assert daemon.stop() == 0
        if allowed:
            subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True, capture_output=True)
            daemon.errors = tmp_path / "stderr"
            assert str(daemon.sessions) in refuses(daemon, 1)
            subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True, capture_output=True)
        else:
            aside = tmp_path / "aside"
            daemon.sessions.rename(aside)
            daemon.sessions.write_text("in the way")
            assert str(daemon.sessions) in refuses(daemon, 1)
            daemon.sessions.unlink()
            aside.rename(daemon.sessions)
        daemon.start()
        with daemon.client() as client:
            assert client.read(session) == before
        daemon.close()


def test_a_socket_path_that_is_too_long(daemons, tmp_path):
    line = refused(2, "--sessions", tmp_path / "sessions", "--socket", tmp_path / ("s" * 108))
    assert "too long" in line or "bytes" in line
    assert not (tmp_path / "sessions").exists()
    daemon = daemons()
    daemon.socket = tmp_path / ("s" * 108)
    assert "bytes" in refuses(daemon, 2)


def test_a_socket_path_that_is_taken(daemons, tmp_path):
    plain = tmp_path / "plain"
    plain.write_text("mine")
    line = refused(1, "--sessions", tmp_path / "sessions", "--socket", plain)
    assert str(plain) in line
    assert plain.read_text() == "mine"
    assert str(plain / "s") in refused(1, "--sessions", tmp_path / "sessions", "--socket", plain / "s")


def test_two_daemons(daemons, tmp_path):
    first = daemons().start()
    with first.client() as client:
        session = create(client)
        say(client, session, "Hello.")
        before = client.read(session)
        # On the same directory.
        second = daemons(tmp_path)
        line = refuses(second, 1)
        assert f"process {first.process.pid}" in line
        assert str(first.sessions) in line
        line = refused(1, "--sessions", first.sessions, "--socket", tmp_path / "other")
        assert f"process {first.process.pid}" in line
        # At the same socket.
        third = daemons(tmp_path / "elsewhere")
        third.directory.mkdir()
        third.socket = first.socket
        assert "in use by another daemon" in refuses(third, 1)
        line = refused(1, "--sessions", tmp_path / "third", "--socket", first.socket)
        assert str(first.socket) in line
        # The first has noticed nothing.
        assert client.read(session) == before
        assert generate(client, session, 3).tokens_generated == 3
        with first.client() as other:
            assert other.ask(requests.List(), responses.Sessions).ids == (session,)
    first.kill()
    # A daemon that was killed leaves its socket and its lock file; neither keeps the next from starting.
    assert first.socket.exists()
    first.start()
    with first.client() as client:
        assert client.read(session)[: len(before)] == before


def test_a_log_that_is_no_log(daemons):
    daemon = daemons().start()
    with daemon.client() as client:
        session = create(client)
        say(client, session, "Hello.")
    assert daemon.stop() == 0
    (database,) = daemon.sessions.glob("*.db")
    whole = database.read_bytes()
    for content in (b"A letter to a friend.\n" * 300, whole[:4096] + bytes(len(whole) - 4096)):
        database.write_bytes(content)
        line = refuses(daemon, 1)
        assert "Traceback" not in line
        assert database.read_bytes() == content
    database.write_bytes(whole)
    daemon.start()
    with daemon.client() as client:
        assert kinds(client.read(session)) == ["Created", "Message"]


def test_the_real_command_serves_and_stops(tmp_path):
    """So that the refusals above are not all it can say."""
    process = subprocess.Popen(
        [*CLI, "--sessions", tmp_path / "sessions", "--socket", tmp_path / "s", "--max-context", "512"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        while "serving on" not in (line := process.stderr.readline()):
            assert line, "it ended"
        process.terminate()
        _, said = process.communicate(timeout=DEADLINE)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 0
    assert "Traceback" not in said
    modes = {path.name: path.stat().st_mode & 0o777 for path in files_below(tmp_path / "sessions")}
    assert set(modes.values()) == {0o600}, modes
