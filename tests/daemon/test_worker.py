"""What a worker is started with."""

import sys

import pytest
import trio

from superfluid.daemon.engine.worker import Worker

# Not from outside: where the C library has read them, the system shows only the first.
_TELL = "import os, pathlib, sys; pathlib.Path(sys.argv[1]).write_text(os.environ['GLIBC_TUNABLES'])"


@pytest.mark.parametrize(
    ("said", "given"),
    [
        (None, "glibc.malloc.hugetlb=1"),
        ("", "glibc.malloc.hugetlb=1"),
        ("glibc.malloc.arena_max=2", "glibc.malloc.arena_max=2:glibc.malloc.hugetlb=1"),
        ("glibc.malloc.hugetlb=0", "glibc.malloc.hugetlb=0"),
    ],
)
def test_it_asks_for_huge_pages_unless_its_environment_says_something_of_them(monkeypatch, tmp_path, said, given):
    if said is None:
        monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    else:
        monkeypatch.setenv("GLIBC_TUNABLES", said)

    told = tmp_path / "told"

    async def started_and_gone():
        await Worker.spawn((sys.executable, "-c", _TELL, str(told))).stop()

    trio.run(started_and_gone)
    assert told.read_text() == given
