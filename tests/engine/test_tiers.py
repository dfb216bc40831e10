"""Which KV a lane gets, and what becomes of the others'."""

from array import array

import pytest

from superfluid.engine.backend import Decoded, Stretch
from superfluid.engine.fake import FakeBackend
from superfluid.engine.fake_model import FakeModel
from superfluid.engine.host import HostCopies, HostCopy
from superfluid.engine.tiers import Tiers
from superfluid.protocol.ticks import KvChange

A = array("I", range(100, 130))
B = array("I", range(200, 220))


class Bench:
    """Tiers over a fake backend, with lanes that compute their tokens at once."""

    def __init__(self, sequences=2, host_bytes=1 << 20, **model):
        self.backend = FakeBackend(FakeModel(**model), 64, sequences, lambda seconds: None)
        self.tiers = Tiers(self.backend, host_bytes)
        self.lane = 0

    def hold(self, session, tokens, keep=(), release=True, ephemeral=False):
        """Let a lane of `session` compute `tokens`: (its sequence, how many were there)."""
        self.lane += 1
        running = {*keep, self.lane}
        slot = self.tiers.acquire(self.lane, session, tokens, len(tokens), running, ephemeral=ephemeral)
        if slot is None:
            return None, 0
        warm = len(slot.tokens)
        rest = tokens[warm:]
        if rest:
            stretch = Stretch(slot.number, warm, rest, True)
            assert self.backend.decode([stretch]) is Decoded.DONE
            self.tiers.settle()
            self.tiers.extend(slot, rest)
            assert self.backend.seen(0) == tokens
        if release:
            self.tiers.release(self.lane)
        return slot, warm


def test_a_session_goes_on_in_place():
    bench = Bench()
    slot, _ = bench.hold(1, A)
    again, warm = bench.hold(1, A + B)
    assert (again, warm) == (slot, len(A))


def test_a_fork_copies_while_a_sequence_is_free():
    bench = Bench()
    slot, _ = bench.hold(1, A)
    fork, warm = bench.hold(2, A + B)
    assert fork is not slot
    assert warm == len(A)
    assert set(bench.tiers.changes()) == {KvChange(1, 1, len(A)), KvChange(2, 1, len(A + B))}


def test_a_fork_takes_the_other_idle_sequence_after_saving_it():
    bench = Bench()
    bench.hold(3, B)
    bench.hold(1, A)
    assert bench.hold(2, A[:20] + B)[1] == 20
    assert set(bench.tiers.changes()) == {KvChange(1, 1, 30), KvChange(2, 1, 40), KvChange(3, 2, 20)}


def test_without_host_memory_the_cheaper_sequence_goes():
    # To spare session 1's last ten tokens, session 3's twenty would have to go.
    bench = Bench(host_bytes=0)
    bench.hold(3, B)
    bench.hold(1, A)
    assert bench.hold(2, A[:20])[1] == 20
    assert set(bench.tiers.changes()) == {KvChange(2, 1, 20), KvChange(3, 1, 20)}


@pytest.mark.parametrize("session", [1, 2])
def test_an_ephemeral_lane_spares_what_it_copies_from_at_any_cost(session):
    bench = Bench(host_bytes=0)
    bench.hold(3, B)
    bench.hold(1, A)
    assert bench.hold(session, A[:20], ephemeral=True)[1] == 20
    assert set(bench.tiers.changes()) == {KvChange(1, 1, 30)}
    bench.tiers.check([])


def test_an_ephemeral_lane_waits_rather_than_move_what_it_copies_from():
    bench = Bench(sequences=2)
    bench.hold(1, A)
    bench.hold(2, B, release=False)
    assert bench.hold(3, A + B, keep={2}, ephemeral=True) == (None, 0)
    assert bench.hold(3, B[::-1], keep={2}, ephemeral=True)[0] is not None


def test_what_an_ephemeral_lane_held_saves_nobody_elses():
    bench = Bench(sequences=2)
    bench.hold(1, A, release=False)
    bench.hold(2, A + B, keep={1}, release=False, ephemeral=True)
    bench.hold(3, B, keep={1})
    assert bench.tiers.host.lanes == {2}
    bench.tiers.release(1)
    bench.hold(4, B[::-1])
    assert [copy.tokens for copy in bench.tiers.host] == [A]
    bench.tiers.release(2)
    bench.tiers.check([])
    assert bench.hold(1, A)[1] == len(A)


def test_a_few_common_tokens_are_not_worth_a_copy():
    bench = Bench()
    bench.hold(1, A)
    assert bench.hold(2, A[:7] + B)[1] == 0
    assert bench.hold(3, A[:8] + B)[1] == 8


def test_the_least_recently_used_goes_first():
    bench = Bench(sequences=3)
    for session, first in ((1, 0), (2, 100), (3, 200)):
        bench.hold(session, array("I", range(first, first + 10)))
    bench.hold(1, array("I", range(11)))
    bench.hold(4, B + A)
    assert {change.session: change.tier for change in bench.tiers.changes()} == {1: 1, 2: 2, 3: 1, 4: 1}


def test_held_sessions_keep_their_sequences():
    bench = Bench(sequences=3)
    bench.tiers.hold([1, 2])
    for session, first in ((2, 0), (1, 100), (3, 300)):
        bench.hold(session, array("I", range(first, first + 10)))
    bench.hold(4, B + A)
    assert {change.session: change.tier for change in bench.tiers.changes()} == {1: 1, 2: 1, 3: 2, 4: 1}
    bench.tiers.hold([1, 4])
    bench.hold(5, A + B)
    assert {change.session: change.tier for change in bench.tiers.changes()} == {2: 2, 5: 1}


def test_an_equal_copy_is_not_saved_again():
    bench = Bench(sequences=1)
    bench.hold(1, A)
    bench.hold(2, B)
    (saved,) = bench.tiers.host
    assert bench.hold(1, A)[1] == len(A)
    bench.hold(2, B)
    assert saved in list(bench.tiers.host)
    assert len(bench.tiers.host) == 2


def test_a_longer_copy_replaces_the_shorter():
    bench = Bench(sequences=1)
    bench.hold(1, A)
    bench.hold(2, B)
    bench.hold(1, A + B)
    bench.hold(2, B)
    assert sorted(len(copy.tokens) for copy in bench.tiers.host) == [len(B), len(A + B)]


def test_a_damaged_host_copy_is_a_miss():
    bench = Bench(sequences=1)
    bench.hold(1, A)
    bench.hold(2, B)
    (copy,) = bench.tiers.host
    bench.tiers.host.drop(copy)
    bench.tiers.host.add(HostCopy(1, A[:], copy.state[:-5], 0))
    assert bench.hold(1, A)[1] == 0
    bench.tiers.check([])


def test_a_copy_that_waits_is_neither_saved_nor_copied_on():
    bench = Bench(sequences=2)
    bench.hold(1, A)
    # All of it is warm, so nothing is decoded and the copy stays pending.
    slot, warm = bench.hold(2, A)
    assert (warm, slot.copied) == (len(A), True)
    assert bench.hold(3, A + B)[1] == len(A)
    assert all(copy.session != 2 for copy in bench.tiers.host)


def test_owned_sequences_are_never_taken():
    bench = Bench(sequences=2)
    bench.hold(1, A, release=False)
    bench.hold(2, B, keep={1}, release=False)
    assert bench.hold(3, A, keep={1, 2}) == (None, 0)
    # Lane 2 waits: it may lose its sequence, though not its KV.
    assert bench.hold(3, B + A, keep={1})[1] == len(B)
    assert KvChange(2, 2, len(B)) in bench.tiers.changes()


@pytest.mark.parametrize(("cut", "warm"), [(29, 0), (30, 30)])
def test_recurrent_sequences_serve_whole_or_not_at_all(cut, warm):
    assert recurrent_or_window(recurrent=1).hold(2, A[:cut] + B)[1] == warm


@pytest.mark.parametrize(("cut", "warm"), [(20, 0), (25, 0), (26, 26), (30, 30)])
def test_windows_allow_short_cuts_only(cut, warm):
    # With a window of 4 and as many positions of slack, 30 tokens leave positions 22 to 29 whole.
    assert recurrent_or_window(window=4).hold(2, A[:cut] + B)[1] == warm


def recurrent_or_window(**model):
    bench = Bench(sequences=3, **model)
    bench.hold(1, A)
    return bench


@pytest.mark.parametrize("model", [{"window": 4}, {"recurrent": 1}])
def test_what_cannot_be_moved_is_not(model):
    bench = recurrent_or_window(**model)
    bench.tiers.shift(1, 5, 10)
    assert bench.tiers.changes() == (KvChange(1, 1, len(A)),)
    assert bench.hold(1, A)[1] == len(A)


def test_a_shift_drops_what_was_saved_of_the_stream_as_it_was():
    bench = Bench(sequences=1)
    bench.hold(2, A[:20] + B)
    bench.hold(1, A[:8])
    bench.hold(3, B)
    bench.hold(1, A)
    bench.hold(3, B)
    bench.hold(1, A)
    bench.tiers.shift(1, 10, 5)
    assert sorted((copy.session, len(copy.tokens)) for copy in bench.tiers.host) == [(2, 40), (3, 20)]
    bench.hold(3, B)
    assert KvChange(1, 2, len(A) - 5) in bench.tiers.changes()
    assert bench.hold(1, A[:10] + A[15:])[1] == len(A) - 5


def test_an_unexecuted_shift_of_a_cleared_sequence_is_gone():
    bench = Bench(sequences=1, host_bytes=0)
    bench.hold(1, A)
    bench.tiers.shift(1, 10, 5)
    bench.hold(2, B)
    assert bench.hold(1, A)[1] == 0


def test_forgetting_takes_sequences_and_copies():
    bench = Bench(sequences=1)
    bench.hold(1, A)
    bench.hold(2, B)
    bench.tiers.forget({1, 2})
    assert len(bench.tiers.host) == 0
    assert bench.tiers.changes() == ()
    assert bench.hold(1, A)[1] == 0


class TestHostCopies:
    def test_the_oldest_go_first(self):
        copies = HostCopies(100)
        one, two, three = (HostCopy(number, A, bytes(40), 0) for number in range(3))
        assert copies.add(one)
        assert copies.add(two)
        copies.touch(one)
        assert copies.add(three)
        assert list(copies) == [one, three]
        copies.check()

    def test_held_ones_go_last(self):
        copies = HostCopies(100, 80)
        one, two, three, four = (HostCopy(number, A, bytes(40), 0) for number in range(1, 5))
        copies.hold([1, 3])
        assert [copies.add(one), copies.add(two), copies.add(three)] == [True, True, True]
        assert list(copies) == [one, three]
        assert not copies.add(four)
        copies.hold([4, 1])
        assert copies.add(four)
        assert list(copies) == [one, four]
        copies.check()

    def test_held_ones_keep_no_more_than_their_part(self):
        copies = HostCopies(100, 50)
        copies.hold([1, 2])
        one, two, three, four = (HostCopy(number, A, bytes(40), 0) for number in range(1, 5))
        assert [copies.add(one), copies.add(two), copies.add(three)] == [True, True, True]
        assert list(copies) == [one, three]
        assert copies.add(four)
        assert list(copies) == [one, four]

    def test_what_never_fits_displaces_nothing(self):
        copies = HostCopies(100)
        copies.add(HostCopy(1, A, bytes(100), 0))
        assert not copies.add(HostCopy(2, A, bytes(101), 0))
        assert len(copies) == 1
