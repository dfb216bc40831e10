"""Host memory that shrinks and grows while it is in use."""

from array import array

from superfluid.engine.host import HostCopies, HostCopy


def copy(session, size=100, *, partial=False):
    return HostCopy(session, array("I", range(session * 1000, session * 1000 + 10)), bytes(size), 0, partial)


def sessions(copies):
    return [one.session for one in copies]


def test_a_smaller_budget_drops_the_oldest_and_held_ones_last():
    copies = HostCopies(1000, held_bytes=500)
    for session in range(1, 6):
        assert copies.add(copy(session))
    copies.hold([2])
    displaced = []
    copies.displaced = displaced.append
    copies.limit(200)
    copies.check()
    assert sessions(copies) == [2, 5]
    assert sessions(displaced) == [1, 3, 4]
    copies.limit(0)
    copies.check()
    assert sessions(copies) == []
    assert not copies.add(copy(9))
    copies.limit(1000)
    assert copies.add(copy(9))
    copies.check()


def test_checkpoints_keep_to_their_share_of_a_smaller_budget():
    copies = HostCopies(4000)
    for session in range(1, 9):
        assert copies.add(copy(session, partial=True))
    copies.add(copy(20))
    copies.limit(1000)
    copies.check()
    assert sessions(copies) == [20]
    assert len(copies.checkpoints) == 2
