"""When KV goes to disk, and that lanes find it there."""

from array import array

import pytest

from superfluid.engine.artifact import Key
from superfluid.engine.backend import Decoded, Stretch
from superfluid.engine.fake import FakeBackend
from superfluid.engine.fake_model import FakeModel
from superfluid.engine.parking import AGAIN, QUIET, SETTLED, Parking
from superfluid.engine.parks import STATELESS, Parks
from superfluid.engine.tiers import Tiers
from superfluid.protocol.ticks import IN_HOST, IN_SEQUENCE, NOWHERE, ON_DISK, KvChange

PATIENCE = 60
CONTEXT = 256


def tokens(session, length=60):
    return array("I", [100 * session + place for place in range(length)])


class Bench:
    """Tiers over a fake backend, with lanes that compute their tokens at once, and a clock that is set."""

    def __init__(self, directory, sequences=2, host_bytes=1 << 20, park_bytes=1 << 20, **model):
        self.directory = directory
        self.settings = (sequences, host_bytes, park_bytes, model)
        self.now = 0.0
        self.lane = 0
        self.open()

    def open(self):
        sequences, host_bytes, park_bytes, model = self.settings
        self.backend = FakeBackend(FakeModel(**model), CONTEXT, sequences, lambda seconds: None)
        self.parks = Parks(self.directory, park_bytes, Key(b"model!", 0, False, "fake"))
        self.parks.scan()
        self.tiers = Tiers(self.backend, host_bytes, 0, self.parks)
        self.found = self.tiers.changes()
        self.parking = Parking(self.tiers, self.parks, lambda: self.now)

    def restart(self):
        self.parking.close()
        self.open()

    def hold(self, session, held, limit=None):
        """Let a lane of `session` compute `held`: how many tokens were there."""
        self.parking.begin()
        self.lane += 1
        slot = self.tiers.acquire(self.lane, session, held, len(held) if limit is None else limit, {self.lane})
        warm = len(slot.tokens)
        if held[warm:]:
            assert self.backend.decode([Stretch(slot.number, warm, held[warm:], True)]) is Decoded.DONE
            self.tiers.settle()
            self.tiers.extend(slot, held[warm:])
            assert self.backend.seen(0) == held
        self.tiers.release(self.lane)
        self.tiers.check([])
        return warm

    def rest(self, seconds=QUIET):
        """Let so much time pass, and the writer do what it may: the last answer of `idle`."""
        self.now += seconds
        while True:
            wait = self.parking.idle()
            self.parking._writer.rest(PATIENCE)
            if wait is None or wait > 0.05:
                return self.parking.idle()

    def places(self):
        return {change.session: (change.tier, change.covered) for change in self.tiers.changes()}

    def parked(self):
        return {artifact.session: len(artifact.tokens) for artifact in self.parks}


@pytest.fixture
def make(tmp_path):
    made = []

    def bench(**settings):
        made.append(Bench(tmp_path / "park", **settings))
        return made[-1]

    yield bench
    for one in made:
        one.parking.close()


class TestInTheBackground:
    def test_idle_sessions_are_written_after_a_moment(self, make):
        bench = make(sequences=3)
        for session in (1, 2, 3):
            bench.hold(session, tokens(session))
        assert bench.rest(QUIET / 2) == QUIET / 2
        assert bench.parked() == {}
        assert bench.rest(QUIET / 2) is None
        assert bench.parked() == {3: 60, 2: 60, 1: 60}
        assert bench.places() == {session: (IN_SEQUENCE, 60) for session in (1, 2, 3)}

    def test_host_copies_are_written_too(self, make):
        bench = make(sequences=1)
        for session in (1, 2, 3):
            bench.hold(session, tokens(session))
        bench.rest()
        assert bench.parked() == {3: 60, 2: 60, 1: 60}

    def test_a_conversation_is_not_written_every_turn(self, make):
        bench = make()
        bench.hold(1, tokens(1, 100))
        assert bench.rest() is None
        bench.hold(1, tokens(1, 105))
        assert bench.rest() == SETTLED - QUIET
        assert bench.parked() == {1: 100}
        assert bench.rest(SETTLED - QUIET) is None
        assert bench.parked() == {1: 105}
        bench.hold(1, tokens(1, 150))
        bench.rest()
        assert bench.parked() == {1: 150}

    def test_a_stream_that_loses_entries_is_not_written_each_time(self, make):
        bench = make()
        held = tokens(1, 160)
        bench.hold(1, held)
        bench.rest()
        for new in range(7):  # each time 10 of the oldest go and 5 come
            bench.tiers.shift(1, 20, 10)
            held = held[:20] + held[30:] + array("I", range(9000 + 5 * new, 9005 + 5 * new))
            assert bench.hold(1, held) == len(held) - 5
            bench.rest()
            assert bench.parked()[1] == (160 if new < 3 else 140 if new < 6 else 125)
        bench.rest(SETTLED)
        assert [artifact.tokens for artifact in bench.parks] == [held]

    def test_what_has_changed_otherwise_is_written(self, make):
        bench = make()
        held = tokens(1, 160)
        bench.hold(1, held)
        bench.rest()
        other = held[:150] + tokens(2, 5)
        bench.hold(1, other)
        bench.rest()
        assert [artifact.tokens for artifact in bench.parks] == [other]

    def test_a_fork_shares_its_parent_s(self, make):
        bench = make()
        bench.hold(1, tokens(1))
        bench.rest()
        bench.hold(2, tokens(1)[:50])
        assert bench.rest() is None
        assert bench.parked() == {1: 60}

    def test_stateless_sessions_are_never_written(self, make):
        bench = make()
        bench.hold(STATELESS, tokens(1))
        assert bench.rest() is None
        assert bench.parking.park(PATIENCE) == 0
        assert list(bench.directory.iterdir()) == []

    def test_what_host_memory_has_no_room_for_is_written(self, make):
        bench = make(sequences=1, host_bytes=300)
        for session in (1, 2, 3):
            bench.hold(session, tokens(session))
        # Session 1's copy made room for session 2's; it waits for the writer, which waits for a quiet moment.
        assert bench.places() == {2: (IN_HOST, 60), 3: (IN_SEQUENCE, 60)}
        bench.rest()
        assert bench.places() == {1: (ON_DISK, 60)}

    def test_a_full_disk_is_tried_again_later(self, make):
        bench = make()
        bench.hold(1, tokens(1))
        bench.directory.rmdir()
        assert bench.rest() == AGAIN
        bench.directory.mkdir()
        assert bench.rest(1) == AGAIN - 1
        bench.rest(AGAIN - 1)
        assert bench.parked() == {1: 60}

    def test_what_is_larger_than_the_budget_is_left_alone(self, make):
        bench = make(park_bytes=100)
        bench.hold(1, tokens(1))
        assert bench.rest() is None
        assert bench.parked() == {}

    def test_a_full_budget_comes_to_rest(self, make):
        bench = make(sequences=1, park_bytes=2100)
        for session in (1, 2, 3, 4):
            bench.hold(session, tokens(session))
        assert bench.rest() is None
        # Each takes 500 bytes, and 1,500 as far as one can know before: the latest used two are kept.
        assert bench.parked() == {4: 60, 3: 60}

    def test_a_full_budget_takes_one_more_for_the_least_recently_used(self, make):
        """Whatever was written when: none of the others is written again."""
        bench = make(sequences=1, park_bytes=2600)
        for session in (1, 2, 3):
            bench.hold(session, tokens(session))
        bench.rest()
        before = {session: bench.parks.path(session).stat().st_ino for session in (2, 3)}
        bench.hold(4, tokens(4))
        bench.rest()
        assert sorted(bench.parked()) == [2, 3, 4]
        assert {session: bench.parks.path(session).stat().st_ino for session in (2, 3)} == before

    def test_the_order_of_use_survives_a_restart(self, make):
        bench = make(sequences=1, park_bytes=2600)
        for session in (1, 2, 3):
            bench.hold(session, tokens(session))
        bench.hold(1, tokens(1, 61))
        assert bench.parking.park(PATIENCE) == 3
        bench.restart()
        bench.hold(4, tokens(4))
        bench.rest()
        assert sorted(bench.parked()) == [1, 3, 4]


class TestOnDemand:
    def test_of_more_than_fit_the_latest_used_are_kept(self, make):
        bench = make(sequences=1, park_bytes=2100)
        for session in (1, 2, 3, 4):
            bench.hold(session, tokens(session))
        assert bench.parking.park(PATIENCE) == 2
        assert bench.parked() == {4: 60, 3: 60}

    def test_everything_is_written_and_stands_in_the_order_of_use(self, make):
        bench = make(sequences=1)
        for session in (1, 2, 3):
            bench.hold(session, tokens(session))
        assert bench.parking.park(PATIENCE) == 3
        assert list(bench.parked()) == [1, 2, 3]
        assert bench.parking.park(PATIENCE) == 0

    def test_what_cannot_finish_is_not_begun(self, make):
        bench = make()
        bench.hold(1, tokens(1))
        assert bench.parking.park(0) == 0
        assert list(bench.directory.iterdir()) == []

    def test_every_last_token_is_written(self, make):
        bench = make()
        bench.hold(1, tokens(1, 100))
        bench.rest()
        bench.hold(1, tokens(1, 101))
        assert bench.parking.park(PATIENCE) == 1
        assert bench.parked() == {1: 101}


class TestComingBack:
    def test_after_a_restart(self, make):
        bench = make()
        for session in (1, 2):
            bench.hold(session, tokens(session))
        bench.parking.park(PATIENCE)
        bench.restart()
        assert set(bench.found) == {KvChange(1, ON_DISK, 60), KvChange(2, ON_DISK, 60)}
        assert bench.hold(1, tokens(1, 80)) == 60
        assert bench.places() == {1: (IN_SEQUENCE, 80)}

    def test_a_fork_finds_its_parent_s(self, make):
        bench = make()
        bench.hold(1, tokens(1))
        bench.parking.park(PATIENCE)
        bench.restart()
        assert bench.hold(2, tokens(1)[:50] + tokens(2)) == 50
        assert bench.places() == {1: (IN_HOST, 60), 2: (IN_SEQUENCE, 110)}

    def test_a_few_tokens_are_not_worth_reading_a_file(self, make):
        bench = make()
        bench.hold(1, tokens(1))
        bench.parking.park(PATIENCE)
        bench.restart()
        assert bench.hold(2, tokens(1)[:12] + tokens(2)) == 0

    def test_what_a_sequence_has_is_not_read_again_for_a_few_more(self, make):
        bench = make(host_bytes=0)
        bench.hold(1, tokens(1))
        bench.parking.park(PATIENCE)
        bench.restart()
        bench.hold(2, tokens(1)[:55])
        assert bench.hold(3, tokens(1), limit=59) == 55

    @pytest.mark.parametrize("recurrent", [0, 1])
    @pytest.mark.parametrize("window", [0, 20])
    def test_every_kind_of_memory(self, make, window, recurrent):
        bench = make(window=window, recurrent=recurrent)
        bench.hold(1, tokens(1))
        bench.parking.park(PATIENCE)
        bench.restart()
        assert bench.hold(1, tokens(1)[:40] + tokens(2)) == (0 if window or recurrent else 40)
        bench.restart()
        assert bench.hold(1, tokens(1, 80)) == 60

    def test_damage_is_a_miss_that_touches_nothing(self, make):
        bench = make()
        bench.hold(1, tokens(1))
        bench.parking.park(PATIENCE)
        bench.restart()
        bench.hold(2, tokens(2))
        path = bench.parks.path(1)
        path.write_bytes(path.read_bytes()[:-1])
        restores = bench.backend._restores
        assert bench.hold(1, tokens(1, 80)) == 0
        assert bench.backend._restores == restores
        assert not path.exists()
        assert bench.places()[2] == (IN_SEQUENCE, 60)

    def test_a_state_that_is_refused_is_a_miss(self, make):
        bench = make(restore_fails_every=1)
        bench.hold(1, tokens(1))
        bench.parking.park(PATIENCE)
        bench.restart()
        assert bench.hold(1, tokens(1, 80)) == 0


class TestForgetting:
    def test_files_go(self, make):
        bench = make()
        for session in (1, 2):
            bench.hold(session, tokens(session))
        bench.rest()
        bench.tiers.forget([1])
        bench.parking.forget([1])
        assert bench.parked() == {2: 60}
        assert [path.name for path in bench.directory.iterdir()] == [bench.parks.path(2).name]
        assert bench.hold(1, tokens(1)) == 0

    def test_what_waits_is_not_written(self, make):
        bench = make(sequences=1, host_bytes=300)
        for session in (1, 2, 3):
            bench.hold(session, tokens(session))
        assert bench.parking._writer.holds(1)
        bench.tiers.forget([1, 2])
        bench.parking.forget([1, 2])
        bench.rest()
        assert bench.parked() == {3: 60}
        assert bench.places() == {3: (IN_SEQUENCE, 60)}

    def test_nothing_is_told_of_it(self, make):
        bench = make()
        bench.hold(1, tokens(1))
        bench.parking.park(PATIENCE)
        bench.restart()
        bench.tiers.forget([1])
        bench.parking.forget([1])
        assert bench.places() == {1: (NOWHERE, 0)}
