"""One daemon a directory: the second learns who the first is, and inherits from the dead."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from superfluid.store.errors import StoreError
from superfluid.store.lock import DirectoryLock

ROOT = Path(__file__).parents[2]

HOLD = """
import sys
from pathlib import Path
from superfluid.store.lock import DirectoryLock
lock = DirectoryLock.acquire(Path(sys.argv[1]), Path("/run/the socket"))
print("held", flush=True)
sys.stdin.read()
"""


def test_the_second_learns_who_holds_it(tmp_path):
    held = DirectoryLock.acquire(tmp_path, tmp_path / "socket")
    with pytest.raises(StoreError) as refused:
        DirectoryLock.acquire(tmp_path, tmp_path / "other")
    text = f"{tmp_path} is in use by another daemon: process {os.getpid()}, socket {tmp_path / 'socket'}"
    assert str(refused.value).startswith(f"{text}; `superfluid stop` ends it")
    held.release()
    DirectoryLock.acquire(tmp_path, tmp_path / "other").release()


def test_it_ends_with_its_process_however_that_ends(tmp_path):
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
    )
    with child:
        assert child.stdout.readline() == b"held\n"
        with pytest.raises(StoreError, match=f"process {child.pid}, socket /run/the socket"):
            DirectoryLock.acquire(tmp_path, tmp_path / "socket")
        child.send_signal(signal.SIGKILL)
        child.wait()
    held = DirectoryLock.acquire(tmp_path, tmp_path / "socket")
    with pytest.raises(StoreError, match=f"process {os.getpid()},"):
        DirectoryLock.acquire(tmp_path, tmp_path / "socket")
    held.release()


@pytest.mark.parametrize(
    "content", [b"", b"\xff\xfe\x00garbage", b"[]", b'{"pid": null}', b'{"pid": "x", "socket": 1}']
)
def test_a_holder_without_a_name(tmp_path, content):
    held = DirectoryLock.acquire(tmp_path, tmp_path / "socket")
    (tmp_path / "serve.lock").write_bytes(content)
    with pytest.raises(StoreError) as refused:
        DirectoryLock.acquire(tmp_path, tmp_path / "socket")
    assert str(refused.value).startswith(f"{tmp_path} is in use by another daemon; ")
    held.release()


def test_a_shorter_name_replaces_a_longer_one_whole(tmp_path):
    DirectoryLock.acquire(tmp_path, tmp_path / ("long" * 40)).release()
    held = DirectoryLock.acquire(tmp_path, tmp_path / "s")
    with pytest.raises(StoreError, match=rf"socket {tmp_path / 's'};"):
        DirectoryLock.acquire(tmp_path, tmp_path / "socket")
    held.release()
