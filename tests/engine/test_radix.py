"""The index finds what a search through everything finds, and loses nothing."""

from array import array
from itertools import takewhile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from superfluid.engine.radix import RadixIndex, common

A, B = array("I", range(100, 130)), array("I", range(200, 220))
tokens = st.lists(st.integers(0, 2), max_size=12).map(lambda drawn: array("I", drawn))


def shared(left, right):
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(left, right, strict=False)))


class IndexMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.index = RadixIndex()
        self.kept = []

    @rule(held=tokens)
    def add(self, held):
        entry = object()
        self.index.add(held, entry)
        self.kept.append((held, entry))

    @rule(data=st.data())
    def remove(self, data):
        if self.kept:
            held, entry = self.kept.pop(data.draw(st.integers(0, len(self.kept) - 1)))
            assert self.index.remove(held, entry)
            assert not self.index.remove(held, entry)

    @rule(held=tokens)
    def remove_what_is_not_there(self, held):
        assert not self.index.remove(held, object())

    @rule(wanted=tokens)
    def search(self, wanted):
        found = list(self.index.ranked(wanted))
        lengths = [length for length, _ in found]
        assert lengths == sorted(lengths, reverse=True)
        searched = {id(entry): shared(held, wanted) for held, entry in self.kept}
        assert {id(entry): length for length, entry in found} == searched
        assert len(found) == len(self.kept)

    @invariant()
    def nothing_is_lost(self):
        self.index.check()
        assert len(self.index) == len(self.kept)


TestIndex = IndexMachine.TestCase
TestIndex.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)


@given(left=tokens, right=tokens)
def test_common_prefixes_are_those_of_a_walk(left, right):
    assert common(left, right) == shared(left, right)


@pytest.mark.parametrize("at", [0, 1, 2, 15, 28, 29, 30])
def test_common_prefixes(at):
    other = A[:at] + array("I", [9]) + A[at + 1 :]
    assert common(A, other) == at
    assert common(other, A[:at]) == at
    assert common(A[:at], A) == at


def test_what_ends_where_the_prompt_does_comes_first():
    index = RadixIndex()
    for entry, held in (("long", A + B), ("equal", A), ("other", B), ("short", A[:5])):
        index.add(held, entry)
    assert list(index.ranked(A)) == [(30, "equal"), (30, "long"), (5, "short"), (0, "other")]
