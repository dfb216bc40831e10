"""What is parked: found again, bounded, erased; and never written where it may not be."""

import os
import resource
import stat
import threading
from array import array

import pytest

from superfluid.engine.artifact import Key, header_for
from superfluid.engine.park_writer import WAITING, Job, ParkWriter
from superfluid.engine.parks import STATELESS, Artifact, Parks
from superfluid.protocol.ticks import pack

KEY = Key(b"\xab" * 8, 0, False, "build")
PATIENCE = 60


def tokens(session, length=40):
    return array("I", [session * 1000 + place for place in range(length)])


class Bench:
    """A directory, and a writer that is let run when told."""

    def __init__(self, directory, budget=1 << 20):
        self.directory = directory
        self.writer = ParkWriter()
        self.budget = budget
        self.open()

    def open(self, key=KEY):
        self.parks = Parks(self.directory, self.budget, key)
        self.parks.scan()
        return self.parks

    def job(self, session, state=b"some state", held=None):
        header = header_for(self.parks.key, session, pack(held or tokens(session)), 0, state)
        return Job(header, state, self.parks.path(session), self.parks.temporary(session))

    def park(self, session, state=b"some state", held=None, used=None):
        job = self.job(session, state, held)
        assert self.writer.write(job, lambda: None)
        if used is not None:
            os.utime(job.path, (used, used))
        self.parks.add(Artifact(session, held or tokens(session), 0, job.size))
        return job.path

    def names(self):
        return sorted(entry.name for entry in self.directory.iterdir())


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path / "park")
    yield made
    made.writer.close()


class TestDirectory:
    def test_files_are_for_their_owner_alone(self, bench):
        old = os.umask(0)
        try:
            path = bench.park(1)
        finally:
            os.umask(old)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(bench.directory.stat().st_mode) == 0o700
        assert path.name == "abababababab-1.park"

    def test_a_scan_finds_what_was_parked_in_order_of_use(self, bench):
        for session, used in ((1, 300), (2, 100), (3, 200)):
            bench.park(session, used=used)
        assert [(one.session, one.tokens) for one in bench.open()] == [(n, tokens(n)) for n in (2, 3, 1)]

    def test_reading_is_using(self, bench):
        for session, used in ((1, 100), (2, 200)):
            bench.park(session, used=used)
        parks = bench.open()
        assert parks.read(parks.of(1)).state == b"some state"
        assert [one.session for one in parks] == [2, 1]
        assert [one.session for one in bench.open()] == [2, 1]

    def test_what_is_left_of_a_write_goes_and_what_is_not_ours_stays(self, bench):
        path = bench.park(1)
        bench.parks.temporary(2).write_bytes(b"half")
        (bench.directory / "notes.txt").write_text("mine")
        (bench.directory / "abababababab-9.park").mkdir()
        (bench.directory / "abababababab-3.park").symlink_to(path)
        assert [one.session for one in bench.open()] == [1]
        assert bench.names() == ["abababababab-1.park", "abababababab-3.park", "abababababab-9.park", "notes.txt"]

    @pytest.mark.parametrize("content", [b"", b"x", b"sf-park\n" + bytes(200), os.urandom(500)])
    def test_garbage_in_an_artifact_s_name_goes(self, bench, content):
        bench.parks.path(5).write_bytes(content)
        assert len(bench.open()) == 0
        assert bench.names() == []

    def test_what_others_need_stays_and_is_not_used(self, bench):
        bench.park(1)
        assert len(bench.open(Key(KEY.identity, 1, False, "build"))) == 0
        assert len(bench.open()) == 1

    def test_a_file_in_another_s_name_is_not_used(self, bench):
        bench.park(1).rename(bench.parks.path(2))
        assert len(bench.open()) == 0

    def test_one_that_was_swapped_is_not_used(self, bench):
        bench.park(1)
        bench.park(2).rename(bench.parks.path(1))
        parks = bench.parks
        assert parks.read(parks.of(1)) is None
        assert parks.of(1) is None
        assert parks.read(parks.of(2)) is None
        parks.index.check()

    def test_a_damaged_one_is_a_miss_and_goes(self, bench):
        path = bench.park(1)
        content = path.read_bytes()
        path.write_bytes(content[:-3] + b"xyz")
        assert bench.parks.read(bench.parks.of(1)) is None
        assert bench.names() == []
        assert len(bench.parks) == 0

    def test_one_that_cannot_be_read_for_want_of_a_descriptor_stays(self, bench):
        path = bench.park(1)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
        try:
            assert bench.parks.read(bench.parks.of(1)) is None
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert path.exists()
        assert bench.parks.bytes == path.stat().st_size
        assert bench.open().of(1) is not None


class TestBudget:
    def test_the_oldest_go_first(self, bench):
        for session in range(1, 5):
            bench.park(session, os.urandom(1000))
        size = bench.parks.of(1).size
        bench.budget = size * 5 // 2
        parks = bench.open()
        assert [one.session for one in parks] == [3, 4]
        parks.make_room(size)
        assert [one.session for one in parks] == [4]
        parks.check()

    def test_its_own_older_one_needs_no_room(self, bench):
        for session in (1, 2):
            bench.park(session, os.urandom(1000))
        bench.budget = bench.parks.bytes
        parks = bench.open()
        parks.make_room(parks.of(1).size, 1)
        assert len(parks) == 2

    def test_some_are_spared(self, bench):
        for session in range(1, 5):
            bench.park(session, os.urandom(1000))
        size = bench.parks.of(1).size
        bench.budget = size * 4
        parks = bench.open()
        assert parks.fits(size * 2, 5, {1, 3})
        assert not parks.fits(size * 2, 5, {1, 3, 4})
        assert parks.fits(size * 2, 4, {1, 3, 4})
        parks.make_room(size * 2, 5, {1, 3})
        assert [one.session for one in parks] == [1, 3]

    def test_files_of_others_count_and_go_first(self, bench):
        bench.park(1, os.urandom(1000))
        size = bench.parks.of(1).size
        bench.budget = size * 5 // 2
        parks = bench.open(Key(KEY.identity, 1, False, "build"))
        assert (len(parks), parks.bytes) == (0, size)
        parks.make_room(size * 2)
        assert bench.names() == []


class TestErasing:
    def test_files_go_whether_they_are_known_or_not(self, bench):
        bench.park(1)
        path = bench.park(2)
        parks = bench.open(Key(KEY.identity, 0, False, "another build"))
        parks.erase([1, 2, 3, STATELESS])
        assert not path.exists()
        assert bench.names() == []
        assert parks.bytes == 0

    def test_a_job_that_waits_is_not_written(self, bench):
        assert bench.writer.offer(bench.job(1))
        assert bench.writer.offer(bench.job(2))
        bench.writer.cancel([1])
        bench.writer.resume()
        assert bench.writer.rest(PATIENCE)
        assert [job.header.session for job in bench.writer.collect()] == [2]
        assert bench.names() == ["abababababab-2.park"]

    def test_a_job_that_is_being_written_leaves_nothing(self, bench):
        begun, go_on = threading.Event(), threading.Event()

        def between():
            begun.set()
            assert go_on.wait(PATIENCE)

        job = bench.job(1)
        thread = threading.Thread(target=bench.writer.write, args=(job, between))
        thread.start()
        assert begun.wait(PATIENCE)
        assert bench.names() == ["abababababab-1.writing"]
        bench.writer.cancel([1])
        assert bench.names() == []
        go_on.set()
        thread.join()
        assert bench.names() == []
        assert job.size is None


class TestWriter:
    def test_nothing_is_written_before_it_may_run(self, bench):
        assert [bench.writer.offer(bench.job(session)) for session in range(WAITING + 1)] == [True] * WAITING + [
            False
        ]
        assert not bench.writer.takes
        assert bench.writer.busy
        assert bench.names() == []
        bench.writer.resume()
        assert bench.writer.rest(PATIENCE)
        assert len(bench.names()) == WAITING
        assert len(bench.writer.collect()) == WAITING
        assert bench.writer.collect() == []

    def test_closing_gives_up_what_waits(self, bench):
        bench.writer.offer(bench.job(1))
        bench.writer.close()
        assert bench.names() == []

    def test_a_directory_that_is_gone_costs_the_file_only(self, bench, capfd):
        bench.directory.rmdir()
        bench.writer.offer(bench.job(1))
        bench.writer.offer(bench.job(2))
        bench.writer.resume()
        assert bench.writer.rest(PATIENCE)
        assert [job.size for job in bench.writer.collect()] == [None, None]
        # One line, not one for each.
        assert capfd.readouterr().err.count("cannot be parked") == 1
