"""`superfluid push` as a process: what arrives, what survives, what is printed, how it ends."""

import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from superfluid.protocol import requests
from superfluid_cli.push.outbox import MOST_ENTRIES
from tests.cli.conftest import Ran
from tests.cli.fake_feed import NAME, SESSION, Disk, FakeFeed
from tests.cli.fake_server import DEADLINE
from tests.cli.processes import PROGRAM, read_until, run

Env = dict[str, str]
Cli = Callable[..., Ran]


@pytest.fixture
def disk() -> Disk:
    return Disk()


def start(arguments: list[str], env: Env) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*PROGRAM, "push", *arguments],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
    )


# --- what arrives -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "arrives"),
    [
        (b"a\nb\n", ["a", "b"]),
        (b"a\nlast", ["a", "last"]),
        (b"\n  \na\r\n\n b\t\n", ["a", " b\t"]),
        ("zürich 3°\n".encode(), ["zürich 3°"]),
        (b"a\xff\nb\n", ["a�", "b"]),
        (b"", []),
    ],
)
def test_lines(socket_path: Path, env: Env, disk: Disk, given: bytes, arrives: list[str]) -> None:
    with FakeFeed(socket_path, disk) as feed:
        ran = subprocess.run(
            [*PROGRAM, "push", NAME], env=env, input=given, capture_output=True, timeout=DEADLINE, check=False
        )
        assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b"")
        assert [*disk.entries, *feed.queue] == arrives


def test_entries_that_end_with_nul(socket_path: Path, env: Env, disk: Disk) -> None:
    with FakeFeed(socket_path, disk):
        assert run(["push", NAME, "-0", "--wait"], env, input="two\nlines\0\0one\0tail\n").returncode == 0
    assert disk.entries == ["two\nlines", "one", "tail\n"]


def test_words_and_a_file(socket_path: Path, env: Env, disk: Disk, folder: Path) -> None:
    (folder / "log").write_text("x\ny")
    with FakeFeed(socket_path, disk):
        assert run(["push", str(SESSION), "a b", "c", "--wait"], env).returncode == 0
        assert run(["push", NAME, "--file", str(folder / "log"), "--wait"], env).returncode == 0
        assert run(["push", NAME, "-", "--wait"], env, input="z").returncode == 0
    assert disk.entries == ["a b", "c", "x", "y", "z"]


def test_a_file_that_cannot_be_read(socket_path: Path, env: Env, disk: Disk, folder: Path) -> None:
    with FakeFeed(socket_path, disk):
        ran = run(["push", NAME, "--file", str(folder)], env)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.startswith(f"superfluid: --file {folder} cannot be read: Is a directory")


def test_a_line_goes_at_once(socket_path: Path, env: Env, disk: Disk) -> None:
    with FakeFeed(socket_path, disk) as feed, start([NAME], env) as process:
        assert process.stdin is not None
        for count in (1, 2, 3):
            process.stdin.write(b"tick\n")
            feed.wait_for(requests.PushNumbered, count)
        process.stdin.close()
        assert process.wait(DEADLINE) == 0
    pushed = [request.data for request in feed.seen if isinstance(request, requests.PushNumbered)]
    assert pushed == [("tick",)] * 3


def test_lines_are_gathered(socket_path: Path, env: Env, disk: Disk) -> None:
    with FakeFeed(socket_path, disk) as feed, start([NAME, "--batch-ms", "60000"], env) as process:
        assert process.stdin is not None
        for _ in range(3):
            process.stdin.write(b"tick\n")
        process.stdin.close()
        assert process.wait(DEADLINE) == 0
    assert [request.data for request in feed.seen if isinstance(request, requests.PushNumbered)] == [("tick",) * 3]


def test_an_entry_that_is_too_long(socket_path: Path, env: Env, disk: Disk) -> None:
    with FakeFeed(socket_path, disk):
        ran = run(["push", NAME, "--wait"], env, input="a\n" + "x" * (9 << 20) + "\nb")
    assert disk.entries == ["a", "b"]
    assert (ran.returncode, ran.stdout, ran.stderr) == (1, "", "superfluid: left out 1 entry over 8 MiB\n")


def test_much_data_in_little_memory(socket_path: Path, env: Env, disk: Disk) -> None:
    lines = 150_000
    with FakeFeed(socket_path, disk), start([NAME, "--wait"], env) as process:
        assert process.stdin is not None
        resident = []
        with open(process.stdin.fileno(), "wb", closefd=False) as pipe:
            for number in range(lines):
                pipe.write(b"%099d\n" % number)
                if number % 10_000 == 9999:
                    resident.append(psutil.Process(process.pid).memory_info().rss)
        process.stdin.close()
        assert process.wait(DEADLINE * 3) == 0
    assert list(map(int, disk.entries)) == list(range(lines))
    assert max(resident[1:]) < resident[0] + (8 << 20)


# --- back-pressure ------------------------------------------------------------------------------------------------


def test_it_reads_no_faster_than_the_session_ingests(socket_path: Path, env: Env, disk: Disk) -> None:
    lines = b"".join(b"%d\n" % number for number in range(60_000))
    with FakeFeed(socket_path, disk, appetite=0) as feed, start([NAME, "--wait"], env) as process:
        assert process.stdin is not None
        writer = threading.Thread(target=lambda: (process.stdin.write(lines), process.stdin.close()))  # type: ignore[union-attr]
        writer.start()
        feed.wait_for(requests.FeedState, 12)
        assert len(feed.queue) == MOST_ENTRIES
        assert writer.is_alive()
        feed.appetite = 500
        feed.wait_for(requests.FeedState, 20)
        assert len(feed.queue) <= MOST_ENTRIES
        feed.appetite = 1 << 30
        assert process.wait(DEADLINE * 2) == 0
        writer.join(DEADLINE)
    assert list(map(int, disk.entries)) == list(range(60_000))


# --- what survives ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rudely", [False, True], ids=["after the acknowledgement", "before it"])
def test_a_daemon_that_dies_and_comes_back(socket_path: Path, env: Env, disk: Disk, rudely: bool) -> None:
    with start([NAME, "--wait"], env) as process:
        assert process.stdin is not None
        feed = FakeFeed(socket_path, disk, appetite=2, pushes=4, rudely=rudely)
        for count in range(1, 5):
            process.stdin.write(b"%d\n" % count)
            feed.wait_for(requests.PushNumbered, count)
        assert feed.died.wait(DEADLINE)
        process.stdin.write(b"5\n6")
        process.stdin.close()
        with FakeFeed(socket_path, disk, appetite=1):
            out, err = process.stdout.read(), process.stderr.read()  # type: ignore[union-attr]
            assert process.wait(DEADLINE) == 0
    assert disk.entries == ["1", "2", "3", "4", "5", "6"]
    assert out == b""
    assert b"looking for it again" in err
    assert b"connected again" in err


def test_a_daemon_that_dies_while_nothing_comes(socket_path: Path, env: Env, disk: Disk) -> None:
    """What was acknowledged but not ingested is sent again without waiting for the next line."""
    with start([NAME], env) as process:
        assert process.stdin is not None
        with FakeFeed(socket_path, disk, appetite=0) as feed:
            process.stdin.write(b"only\n")
            feed.wait_for(requests.PushNumbered)
        with FakeFeed(socket_path, disk) as feed:
            feed.wait_for(requests.PushNumbered)
            assert list(feed.queue) == ["only"]
            process.stdin.close()
            assert process.wait(DEADLINE) == 0


def test_a_daemon_that_dies_is_missed_at_once(socket_path: Path, env: Env, disk: Disk) -> None:
    with start([NAME], env) as process:
        assert process.stdin is not None
        with FakeFeed(socket_path, disk) as feed:
            feed.wait_for(requests.FeedState)
        assert b"looking for it again" in read_until(process.stderr, b"\n")
        with FakeFeed(socket_path, disk):
            assert b"connected again" in read_until(process.stderr, b"\n")
            process.stdin.close()
            assert process.wait(DEADLINE) == 0


def test_a_connection_that_breaks_doubles_nothing(socket_path: Path, env: Env, disk: Disk) -> None:
    with FakeFeed(socket_path, disk, appetite=1, hang_ups=(0, 2)):
        assert run(["push", NAME, "--wait"], env, input="1\n2\n3\n").returncode == 0
        assert run(["push", NAME, "--wait", "4", "5"], env).returncode == 0
    assert disk.entries == ["1", "2", "3", "4", "5"]


def test_a_daemon_that_dies_again_and_again(socket_path: Path, env: Env, disk: Disk) -> None:
    lines = [str(number) for number in range(5000)]
    with start([NAME, "--wait"], env) as process:
        assert process.stdin is not None
        feed = FakeFeed(socket_path, disk, appetite=100, pushes=2)
        with open(process.stdin.fileno(), "wb", closefd=False) as pipe:
            pipe.write("\n".join(lines).encode())
        process.stdin.close()
        for life in range(4):
            assert feed.died.wait(DEADLINE)
            feed = FakeFeed(socket_path, disk, appetite=300, pushes=3, rudely=life % 2 == 0)
        assert feed.died.wait(DEADLINE)
        with FakeFeed(socket_path, disk, appetite=500):
            assert process.wait(DEADLINE) == 0
    assert disk.entries == lines


# --- how it ends --------------------------------------------------------------------------------------------------


def test_wait(socket_path: Path, env: Env, disk: Disk) -> None:
    with FakeFeed(socket_path, disk, appetite=0) as feed, start([NAME, "--wait", "a", "b"], env) as process:
        feed.wait_for(requests.FeedState, 5)
        assert process.poll() is None
        feed.appetite = 1
        assert process.wait(DEADLINE) == 0
    assert disk.entries == ["a", "b"]


def test_without_wait_an_acknowledgement_is_enough(socket_path: Path, env: Env, disk: Disk) -> None:
    with FakeFeed(socket_path, disk, appetite=0) as feed:
        assert run(["push", NAME, "a"], env).returncode == 0
        assert list(feed.queue) == ["a"]


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_delivers_what_was_read(socket_path: Path, env: Env, disk: Disk, number: signal.Signals) -> None:
    with FakeFeed(socket_path, disk) as feed, start([NAME, "--batch-ms", "60000"], env) as process:
        assert process.stdin is not None
        feed.wait_for(requests.FeedState)
        process.stdin.write(b"one\ntwo\nhal")
        process.send_signal(number)
        out, err = process.stdout.read(), process.stderr.read()  # type: ignore[union-attr]
        assert process.wait(DEADLINE) == 130
        assert [*disk.entries, *feed.queue] == ["one", "two"]
    assert (out, err) == (b"", b"a last line that had not come to its end was left out\n")


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_does_not_wait_for_the_ingest(socket_path: Path, env: Env, disk: Disk) -> None:
    with FakeFeed(socket_path, disk, appetite=0) as feed, start([NAME, "--wait", "a"], env) as process:
        feed.wait_for(requests.FeedState, 3)
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE) == 130
        assert process.stderr.read() == b"1 entry accepted, but maybe not ingested yet\n"  # type: ignore[union-attr]


@pytest.mark.usefixtures("interruptible")
def test_a_second_ctrl_c_gives_up_and_says_on_what(socket_path: Path, env: Env, disk: Disk) -> None:
    """The session ingests nothing, so that most of what was read still waits here."""
    with FakeFeed(socket_path, disk, appetite=0) as feed, start([NAME], env) as process:
        assert process.stdin is not None
        lines = [str(number) for number in range(9000)]
        process.stdin.write("\n".join(lines).encode())
        feed.wait_for(requests.PushNumbered, 2)
        process.send_signal(signal.SIGINT)
        feed.wait_for(requests.FeedState, sum(isinstance(it, requests.FeedState) for it in feed.seen) + 2)
        process.send_signal(signal.SIGINT)
        out, err = process.stdout.read(), process.stderr.read()  # type: ignore[union-attr]
        assert process.wait(DEADLINE) == 130
        assert [*feed.queue, *out.decode().split()] == lines[:-1]
    assert b"not delivered; they follow on stdout" in err


def test_what_could_not_be_delivered_is_printed(socket_path: Path, env: Env, disk: Disk) -> None:
    with start([NAME, "--retry", "0.3s"], env) as process:
        assert process.stdin is not None
        with FakeFeed(socket_path, disk, appetite=1, pushes=2) as feed:
            for count, line in enumerate((b"1\n", b"2\n", b"3\n4"), 1):
                process.stdin.write(line)
                if count < 3:
                    feed.wait_for(requests.PushNumbered, count)
            assert feed.died.wait(DEADLINE)
        process.stdin.close()
        out, err = process.stdout.read(), process.stderr.read()  # type: ignore[union-attr]
        assert process.wait(DEADLINE) == 1
    assert (disk.entries + out.decode().split())[:2] == ["1", "2"]
    assert b"not delivered; they follow on stdout" in err
    assert b"the rest of the input was not read" in err


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_while_there_is_no_daemon(socket_path: Path, env: Env, disk: Disk) -> None:
    with start([NAME, "--json"], env) as process:
        assert process.stdin is not None
        with FakeFeed(socket_path, disk, appetite=0) as feed:
            process.stdin.write(b"kept\n")
            feed.wait_for(requests.PushNumbered)
        err = b""
        while b"looking for it again" not in err:
            err += os.read(process.stderr.fileno(), 4096)  # type: ignore[union-attr]
        process.send_signal(signal.SIGINT)
        out = process.stdout.read()  # type: ignore[union-attr]
        assert process.wait(DEADLINE) == 130
    assert json.loads(out.splitlines()[-1]) == {"undelivered": "kept"}


def test_a_session_that_is_purged_meanwhile(socket_path: Path, env: Env, disk: Disk) -> None:
    with FakeFeed(socket_path, disk) as feed, start([NAME], env) as process:
        assert process.stdin is not None
        feed.wait_for(requests.FeedState)
        disk.purged = True
        process.stdin.write(b"late\n")
        out, err = process.stdout.read(), process.stderr.read()  # type: ignore[union-attr]
        assert process.wait(DEADLINE) == 4
    assert out == b"late\n"
    assert f"superfluid: session {SESSION} was purged\n".encode() in err


def test_entries_that_the_session_drops(socket_path: Path, env: Env, disk: Disk) -> None:
    with FakeFeed(socket_path, disk, appetite=0) as feed, start([NAME, "--wait", "a", "b"], env) as process:
        feed.wait_for(requests.FeedState, 2)
        with feed.arrived:
            feed.queue.popleft()
            disk.dropped += 1
            feed.appetite = 1
        assert process.wait(DEADLINE) == 1
        assert process.stderr.read() == b"superfluid: the session dropped 1 entry, for which there was no room\n"  # type: ignore[union-attr]


def test_nobody_there(env: Env, socket_path: Path) -> None:
    ran = run(["push", NAME], env, input="a\n")
    assert (ran.returncode, ran.stdout) == (3, "")
    assert ran.stderr == f"superfluid: no daemon at {socket_path}; start one with `superfluid serve`\n"


def test_no_such_session(socket_path: Path, env: Env, disk: Disk) -> None:
    with FakeFeed(socket_path, disk):
        ran = run(["push", "other", "a"], env)
    assert (ran.returncode, ran.stdout, ran.stderr) == (
        4,
        "",
        "superfluid: no session is named 'other'; --create makes it\n",
    )


def test_create(socket_path: Path, env: Env, disk: Disk) -> None:
    disk.exists = False
    with FakeFeed(socket_path, disk) as feed:
        for _ in range(2):
            arguments = ["push", NAME, "--create", "--window", "512", "--pre-decode", "--wait", "a"]
            ran = run(arguments, env)
            assert (ran.returncode, ran.stderr) == (0, "")
        ran = run(["push", NAME, "--create", "--window", "99", "--wait", "b"], env)
        assert (ran.returncode, ran.stderr) == (0, "the session is there already, window 512\n")
    assert [it for it in feed.seen if isinstance(it, requests.Open)] == [requests.Open(NAME, 512, True)]
    assert disk.entries == ["a", "a", "b"]


def test_acknowledgements_as_json(socket_path: Path, env: Env, disk: Disk) -> None:
    with FakeFeed(socket_path, disk):
        ran = run(["push", NAME, "--json", "a", "b"], env)
    assert json.loads(ran.stdout) == {
        "pushed": 2,
        "dropped": 0,
        "pending": 2,
        "total_pushed": 2,
        "total_dropped": 0,
        "data_version": 0,
        "taken": 0,
    }


def test_a_reader_that_leaves(socket_path: Path, env: Env, disk: Disk) -> None:
    with FakeFeed(socket_path, disk) as feed, start([NAME, "--json"], env) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        feed.wait_for(requests.FeedState)
        process.stdout.close()
        process.stdin.write(b"a\n")
        feed.wait_for(requests.PushNumbered)
        assert process.wait(DEADLINE) == 141
        assert process.stderr.read() == b""  # type: ignore[union-attr]
        assert [*disk.entries, *feed.queue] == ["a"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("feed", "--window", "5"), "--window and --pre-decode are for a session that --create makes"),
        (("5", "--create", "x"), "--create needs a name, and 5 is an id"),
        (("feed", "x", "--file", "y"), "both TEXT and --file are given"),
        (("feed", "x", " "), "the text is empty"),
        (("a.b", "x"), "invalid value for 'ID': expected a session's id or name, got 'a.b'"),
        (("feed", "--file", "/nowhere/x"), "--file /nowhere/x: No such file"),
        (
            ("feed", "x", "--url", "ftp://x"),
            "invalid value for '--url': expected a URL such as",
        ),
        (("feed", "x", "--batch-ms", "-1"), "invalid value for '--batch-ms'"),
    ],
)
def test_bad_words(cli: Cli, arguments: tuple[str, ...], message: str) -> None:
    ran = cli("push", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"superfluid: {message}")
