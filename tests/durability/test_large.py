"""Sessions that are long, and replies that do not fit: bounded, and said."""

import pytest

from superfluid.protocol import records, requests, responses
from superfluid.protocol.frames import MAX_FRAME
from tests.durability.house import Following, Wire, err, fork, until
from tests.support.daemon import create, generate, say, tokens_of


@pytest.mark.parametrize("count", [1500, pytest.param(5000, marks=pytest.mark.heavy)])
def test_a_session_of_many_events(daemons, count):
    daemon = daemons(max_context=16384).start()
    with daemon.client() as client, Wire(daemon) as wire:
        session = create(client)
        for _ in range(count // 500):
            wire.send(*[requests.Append(session, f"n{number}", (5 + number, 6)) for number in range(500)])
            assert all(isinstance(wire.receive(), responses.Committed) for _ in range(500))
        events = client.read(session)
        assert [event.event_id for event in events] == list(range(count + 1))
        assert client.read(session, count - 10) == events[count - 10 :]
        inspection = client.ask(requests.Inspect(session), responses.Inspection).inspection
        assert inspection.events == events
        assert len(inspection.tokens) == 2 * count
        follower = Following(daemon, session)
        until(lambda: len(follower.events) == count + 1)
        assert tuple(follower.events) == events
        child = fork(client, session, count // 2)
        assert client.read(child)[: count // 2] == events[: count // 2]
    daemon.kill()
    daemon.start()
    with daemon.client() as client:
        assert client.read(session) == events
        assert len(tokens_of(client, child)) == 2 * (count // 2 - 1)
        assert generate(client, session, 3).tokens_generated == 3


def test_a_reply_over_the_frame_limit_names_the_cursor(daemons):
    daemon = daemons().start()
    with daemon.client() as client:
        session = create(client)
        text = "x" * (12 << 20)
        for _ in range(6):
            client.call(requests.Append(session, text, (5,)))
        assert len(text) * 6 > MAX_FRAME
        for request in (requests.Read(session, 0), requests.Inspect(session)):
            assert "cursor" in err(client, request)
        assert [e.event_id for e in client.read(session, 4)] == [4, 5, 6]
        # A subscription takes it in pieces.
        follower = Following(daemon, session)
        until(lambda: len(follower.events) == 7)
        assert follower.events[-1].body == records.Appended(text, (5,))
        say(client, session, "And on it goes.")
        until(lambda: len(follower.events) == 8)


@pytest.mark.heavy
def test_ten_thousand_sessions(daemons):
    daemon = daemons().start()
    with Wire(daemon) as wire:
        for _ in range(20):
            wire.send(*[requests.Create(None, records.GenParams()) for _ in range(500)])
            assert all(isinstance(wire.receive(), responses.Created) for _ in range(500))
    daemon.kill()
    daemon.start()
    with daemon.client() as client:
        assert len(client.ask(requests.List(), responses.Sessions).ids) == 10_000
        session = create(client)
        assert session == 10_001
