"""What a real model still knows after its window of data has moved on many times."""

from pathlib import Path

import pytest

from superfluid.model.vocabulary import Vocabulary
from superfluid.protocol.ticks import LaneOptions, Shift
from tests.engine.process import embedded_model, worker

WINDOW = 256
EVICTIONS = 30
ASKING = LaneOptions(ephemeral=True, ignore_end=True)


@pytest.fixture(scope="module")
def vocabulary():
    with Vocabulary(Path(embedded_model())) as opened:
        yield opened


class Feed:
    """A session with a front that stays and lines of data in a window, which are evicted by shifts alone."""

    def __init__(self, running, vocabulary, front, shifts):
        self.shifts = shifts
        self.running = running
        self.vocabulary = vocabulary
        self.front = self.tokens(front)
        self.lines = []
        self.evictions = 0

    def tokens(self, text):
        return self.vocabulary.tokenize_after("\n", text, special=False)

    @property
    def stream(self):
        return [*self.front, *(token for line in self.lines for token in line)]

    def push(self, text):
        """Take a line in: everything else has to come warm, where the model can shift."""
        line = self.tokens(text)
        while sum(map(len, self.lines)) + len(line) > WINDOW:
            self.running.send(Shift(1, len(self.front), len(self.lines.pop(0))))
            self.evictions += 1
        held = self.stream
        self.lines.append(line)
        reply = self.running.generate(1, self.stream, 0)
        assert reply.warm + reply.prefilled == len(self.stream)
        if self.evictions:
            moved = reply.warm < len(self.front) + len(self.lines[0])
            assert moved if not self.shifts else reply.warm == len(held)

    def ask(self, text):
        reply = self.running.generate(2, self.stream + self.tokens(text), 5, options=ASKING)
        assert reply.warm == len(self.stream)
        return b"".join(map(self.vocabulary.piece, reply.tokens)).decode()


def lines():
    number = 0
    while True:
        number += 1
        yield f"Sensor {number % 7} in hall {number % 5} reads {number * 37 % 101} degrees.\n"


@pytest.mark.heavy
def test_what_stays_and_what_came_last_are_both_known(vocabulary):
    with worker(context=512, lanes=1, spare=1) as running:
        front = "The secret word is banana. Everyone knows the secret word is banana.\n"
        feed = Feed(running, vocabulary, front, shifts=True)
        data = lines()
        while feed.evictions < EVICTIONS:
            feed.push(next(data))
        feed.push("The name of the dog is Rufus. Everyone knows the name of the dog is Rufus.\n")
        assert feed.evictions > EVICTIONS
        assert "banana" in feed.ask("The secret word is")
        assert "Rufus" in feed.ask("The name of the dog is")


def test_quantised_keys_are_computed_again_and_not_rounded_again(vocabulary):
    with worker(context=512, lanes=1, spare=1, kv_type=1) as running:
        feed = Feed(running, vocabulary, "Sensors.\n", shifts=False)
        data = lines()
        while feed.evictions < 2:
            feed.push(next(data))
