"""A purge is acknowledged once no file holds anything of the session, artifacts included."""

from superfluid.protocol import requests, responses
from superfluid.protocol.codes import PurgeMode
from superfluid.protocol.ticks import pack
from tests.parks.conftest import ask, words
from tests.support.daemon import FAKE, create, tokens_of
from tests.warmth.stories import append

TEXT = "The password of the vault is plumbago nineteen. "


def holding(directory, *needles):
    """The files below a directory that hold one of these byte strings."""
    found = []
    for path in directory.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            found += [path.name for needle in needles if needle in content]
    return sorted(set(found))


def purge(client, session):
    return client.ask(requests.Purge(session, 0, PurgeMode.CASCADE), responses.Purged)


def told_secret(client):
    """A session, and what of it must be gone: its text and its tokens."""
    session = create(client)
    span = append(client, session, TEXT * 8)
    ask(client, session, words(session, 20))
    return session, (TEXT.encode(), pack(span)[:80])


def test_an_artifact_goes_with_its_session(parked):
    made = parked(worker_argv=FAKE)
    with made.daemon.client() as client:
        kept, of_kept = told_secret(client)
        session, needles = told_secret(client)
        other = create(client)
        ask(client, other, words(other, 100))
        made.written(session, kept, other)
        assert made.files()[session].name in holding(made.daemon.sessions, needles[1])
        purge(client, kept)
        purge(client, session)
        assert holding(made.daemon.sessions, *needles, *of_kept) == []
        assert made.files().keys() == {other}


def test_also_one_that_an_earlier_daemon_wrote(parked):
    made = parked(worker_argv=FAKE)
    with made.daemon.client() as client:
        session, needles = told_secret(client)
    with made.restart().client() as client:
        assert made.files().keys() == {session}
        purge(client, session)
        assert holding(made.daemon.sessions, *needles) == []
        assert made.files() == {}


def test_at_any_moment_of_its_writing(parked):
    """Purged right after its turn, while it waits, is written, or was."""
    made = parked(worker_argv=FAKE)
    with made.daemon.client() as client:
        for number in range(12):
            session, needles = told_secret(client)
            if number % 3 == 2:
                made.written(session)
            tokens_of(client, session)
            purge(client, session)
            assert holding(made.daemon.sessions, *needles) == []
    made.restart()
    assert made.files() == {}
    assert list(made.directory.iterdir()) == []


def test_by_a_daemon_that_does_not_park(parked):
    made = parked(worker_argv=FAKE)
    with made.daemon.client() as client:
        session, needles = told_secret(client)
        made.written(session)
    assert made.daemon.stop() == 0
    made.daemon.settings["park"] = False
    with made.daemon.start().client() as client:
        purge(client, session)
        assert holding(made.daemon.sessions, *needles) == []
        assert made.files() == {}


def test_what_a_worker_left_half_written(parked):
    """The worker died while it wrote, and the daemon that comes next does not park."""
    made = parked(worker_argv=FAKE)
    with made.daemon.client() as client:
        session, needles = told_secret(client)
        other = create(client)
        ask(client, other, words(other, 100))
        made.written(session, other)
    assert made.daemon.stop() == 0
    made.daemon.settings["park"] = False
    with made.daemon.start().client() as client:
        for path in made.files().values():
            path.rename(path.with_suffix(".writing"))
        assert holding(made.directory, needles[1]) != []
        purge(client, session)
        assert holding(made.daemon.sessions, *needles) == []
        assert len(list(made.directory.iterdir())) == 1
    made.restart()
    assert list(made.directory.iterdir()) == []
