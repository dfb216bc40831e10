"""Daemons that park KV on disk."""

import time

import pytest

from tests.support.closing import closing_all
from tests.support.daemon import DEADLINE, Daemon, generate
from tests.warmth.stories import append


class Parked:
    """A daemon with `--park`, and its park directory."""

    def __init__(self, directory, **settings):
        self.daemon = Daemon(directory, park=True, **settings)
        self.directory = self.daemon.sessions / "park"

    def close(self):
        self.daemon.close()

    def files(self):
        """The artifacts by session."""
        return {int(path.stem.rpartition("-")[2]): path for path in self.directory.glob("*.park")}

    def written(self, *sessions):
        """Wait until these sessions are on disk."""
        deadline = time.monotonic() + DEADLINE
        while not self.files().keys() >= set(sessions):
            assert time.monotonic() < deadline, sorted(self.files())
            time.sleep(0.02)

    def restart(self):
        assert self.daemon.stop() == 0, self.daemon.said()
        return self.daemon.start()


@pytest.fixture
def parked(tmp_path):
    """A maker of such daemons, in one directory; what a test leaves running is killed."""
    with closing_all(lambda **settings: Parked(tmp_path, **settings)) as make:

        def started(**settings):
            one = make(**settings)
            one.daemon.start()
            return one

        yield started


def words(session, count):
    """Tokens of one session, unlike those of any other."""
    return [1000 + (session * 7919 + place * 31) % 40_000 for place in range(count)]


def ask(client, session, tokens, limit=3):
    """Append tokens and generate: (tokens drawn, how many came warm)."""
    append(client, session, tokens=tokens)
    summary = generate(client, session, limit)
    return [token for event in summary.events for token in event.body.span], summary.warm_prefix
