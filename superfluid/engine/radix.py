"""An index of token lists by their prefixes: which of the things kept share how much with a prompt.

A radix tree: every node stands for the tokens on the way to it, and holds the entries whose tokens end there. No
node is without use (an inner one has entries or at least two branches), so the tree is as large as what it indexes.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Entry = TypeVar("Entry")


def common(left: array[int], right: array[int]) -> int:
    """The length of the longest common prefix, in a logarithmic number of block comparisons."""
    low, high = 0, min(len(left), len(right))
    if left[:high] == right[:high]:
        return high
    # left[:low] agrees, left[:high] does not.
    while high - low > 1:
        middle = (low + high) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle
    return low


def strays(held: array[int], stream: array[int]) -> bool:
    """Whether `held` holds tokens in a place where `stream` has others."""
    return common(held, stream) < min(len(held), len(stream))


@dataclass(slots=True, eq=False)
class _Node(Generic[Entry]):
    """`edge` is what stands between the parent's tokens and this node's."""

    edge: array[int]
    branches: dict[int, _Node[Entry]] = field(default_factory=dict)
    entries: list[Entry] = field(default_factory=list)


class RadixIndex(Generic[Entry]):
    """Entries under their token lists. An entry is what it is (`is`), not what it equals."""

    def __init__(self) -> None:
        self._root: _Node[Entry] = _Node(array("I"))
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, tokens: array[int], entry: Entry) -> None:
        node, at = self._root, 0
        while at < len(tokens):
            branch = node.branches.get(tokens[at])
            if branch is None:
                branch = node.branches[tokens[at]] = _Node(tokens[at:])
                node, at = branch, len(tokens)
                continue
            shared = common(branch.edge, tokens[at : at + len(branch.edge)])
            if shared < len(branch.edge):
                branch = node.branches[tokens[at]] = _split(branch, shared)
            node, at = branch, at + shared
        node.entries.append(entry)
        self._size += 1

    def remove(self, tokens: array[int], entry: Entry) -> bool:
        """Take out an entry that was added under these tokens: whether it was there."""
        path = [self._root]
        at = 0
        while at < len(tokens):
            branch = path[-1].branches.get(tokens[at])
            if branch is None or tokens[at : at + len(branch.edge)] != branch.edge:
                return False
            path.append(branch)
            at += len(branch.edge)
        place = next((place for place, held in enumerate(path[-1].entries) if held is entry), None)
        if place is None:
            return False
        del path[-1].entries[place]
        self._size -= 1
        _tidy(path)
        return True

    def ranked(self, tokens: array[int]) -> Iterator[tuple[int, Entry]]:
        """Every entry with the number of tokens that it has in common with `tokens`, the longest first; of equals,
        those that end soonest after it. The tree must not change meanwhile."""
        path, depths = [self._root], [0]
        while depths[-1] < len(tokens):
            branch = path[-1].branches.get(tokens[depths[-1]])
            if branch is None:
                break
            shared = common(branch.edge, tokens[depths[-1] : depths[-1] + len(branch.edge)])
            path.append(branch)
            depths.append(depths[-1] + shared)
            if shared < len(branch.edge):
                break
        came_from: _Node[Entry] | None = None
        for node, depth in zip(reversed(path), reversed(depths), strict=True):
            for entry in _below(node, came_from):
                yield depth, entry
            came_from = node

    def check(self) -> None:
        """Raise AssertionError where the tree is not in order."""
        count = 0
        nodes = [self._root]
        while nodes:
            node = nodes.pop()
            count += len(node.entries)
            nodes += node.branches.values()
            for first, branch in node.branches.items():
                assert branch.edge, "an empty edge"
                assert branch.edge[0] == first, "a branch under a wrong token"
                assert branch.entries or len(branch.branches) > 1, "a node without use"
        assert count == self._size, "entries were lost"


def _split(node: _Node[Entry], at: int) -> _Node[Entry]:
    """Put a node between `node` and its parent, after the first `at` tokens of its edge."""
    upper: _Node[Entry] = _Node(node.edge[:at])
    node.edge = node.edge[at:]
    upper.branches[node.edge[0]] = node
    return upper


def _tidy(path: list[_Node[Entry]]) -> None:
    """Remove the last node of a path if nothing needs it, and what that makes needless above it."""
    node = path[-1]
    if len(path) == 1 or node.entries or len(node.branches) > 1:
        return
    parent = path[-2]
    if node.branches:
        (child,) = node.branches.values()
        child.edge = node.edge + child.edge
        parent.branches[child.edge[0]] = child
        return
    del parent.branches[node.edge[0]]
    _tidy(path[:-1])


def _below(node: _Node[Entry], besides: _Node[Entry] | None) -> Iterator[Entry]:
    """The entries of a node and all under it, without one branch of it."""
    level = [node]
    while level:
        below: list[_Node[Entry]] = []
        for one in level:
            yield from one.entries
            below += (branch for branch in one.branches.values() if branch is not besides)
        level = below
