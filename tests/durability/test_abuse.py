"""The socket in the hands of careless and hostile clients: each hurts itself at most."""

import os
import random
import socket
import struct

import pytest

from superfluid.protocol import postcard, records, requests, responses
from superfluid.protocol.codes import PurgeMode
from superfluid.protocol.frames import MAX_FRAME, frame
from tests.durability.house import Asked, Following, Wire, err, fake, flaky, kill_worker, kinds, until
from tests.support.daemon import create, generate, say

LIST = frame(postcard.encode(requests.Request, requests.List()))


def still_serves(daemon):
    with daemon.client() as client:
        session = create(client)
        say(client, session, "Hello.")
        assert generate(client, session, 3).tokens_generated == 3


def idle(client, session):
    """Wait until the session's generation is over."""
    until(lambda: "no generation in flight" in err_or_none(client, requests.Cancel(session)))


def patiently(daemon):
    """A connection, once the daemon has accepted enough of those before it."""
    found = []

    def connect():
        try:
            found.append(Wire(daemon))
        except BlockingIOError:  # the kernel's word that a thousand others wait
            pass
        return found

    until(connect)
    return found[0]


def err_or_none(client, request):
    try:
        client.call(request)
    except Exception as fault:
        return str(fault)
    return ""


def test_garbage(daemons):
    daemon = daemons().start()
    chance = random.Random("garbage")
    for _ in range(150):
        payload = chance.randbytes(chance.randint(1, 60))
        with Wire(daemon) as wire:
            wire.socket.sendall(LIST + frame(payload))
            wire.socket.shutdown(socket.SHUT_WR)
            assert isinstance(wire.receive(), responses.Sessions)
            while wire.receive() is not None:
                pass
    with Wire(daemon) as wire:
        wire.socket.sendall(frame(b"\xff\xff\xff\xff\x0f") + LIST)
        assert wire.receive().message.startswith("protocol: undecodable request: ")
        assert wire.receive() is None
    with Wire(daemon) as wire:
        wire.socket.sendall(frame(b"") + LIST)
        assert isinstance(wire.receive(), responses.Err)
    still_serves(daemon)


def test_mangled_requests(daemons):
    """Real requests with a byte changed, cut or added: an answer, an Err or a closed connection; never a hang."""
    daemon = daemons(worker_argv=fake(end_every=20)).start()
    chance = random.Random("mangled")
    with daemon.client() as client:
        session = create(client)
        say(client, session, "Hello.")
    wholes = [
        requests.Create(None, records.GenParams()),
        requests.Append(session, "text", (1, 2, 3)),
        requests.AppendMessage(session, 1, "text"),
        requests.Generate(session, 5),
        requests.Read(session, 0),
        requests.Fork(session, 1, records.GenParams(1.0, 1.0, 0.0, 5, 6)),
        requests.Rebase(session, (records.Drop(1, 2), records.Replace(2, 3, 1, "x")), None),
        requests.SetMeta(session, 0, "title", True),
        requests.Subscribe(session, 0, True),
        requests.Inspect(session),
        requests.AppendSystem(session, "x", ("{}",)),
        requests.PutMedia(b"\x00\x01", "image/png"),
    ]
    for _ in range(200):
        payload = bytearray(postcard.encode(requests.Request, chance.choice(wholes)))
        at = chance.randrange(len(payload))
        mangle = chance.randrange(3)
        if mangle == 0:
            payload[at] = chance.randrange(256)
        elif mangle == 1:
            del payload[at:]
        else:
            payload.insert(at, chance.randrange(256))
        with Wire(daemon) as wire:
            wire.socket.sendall(frame(bytes(payload)))
            wire.socket.shutdown(socket.SHUT_WR)
            while wire.receive() is not None:
                pass
    still_serves(daemon)


def test_frames_that_are_too_long_or_never_end(daemons):
    daemon = daemons().start()
    for length in (MAX_FRAME + 1, 2**32 - 1):
        with Wire(daemon) as wire:
            wire.socket.sendall(LIST + struct.pack("<I", length))
            assert isinstance(wire.receive(), responses.Sessions)
            assert wire.receive() is None
    halves = [Wire(daemon) for _ in range(20)]
    for number, wire in enumerate(halves):
        wire.socket.sendall(LIST[: number % len(LIST)] if number % 2 else struct.pack("<I", 1 << 20) + bytes(1000))
    still_serves(daemon)
    for wire in halves:
        wire.socket.close()
    with Wire(daemon) as wire:
        for byte in LIST * 3:
            wire.socket.sendall(bytes([byte]))
        assert [type(wire.receive()) for _ in range(3)] == [responses.Sessions] * 3
    still_serves(daemon)


def test_thousands_of_short_connections(daemons):
    daemon = daemons().start()
    descriptors = os.listdir(f"/proc/{daemon.process.pid}/fd")
    for number in range(2000):
        with patiently(daemon) as wire:
            if number % 3 == 0:
                wire.socket.sendall(LIST)
            elif number % 3 == 1:
                wire.socket.sendall(LIST[:3])
    still_serves(daemon)
    until(lambda: len(os.listdir(f"/proc/{daemon.process.pid}/fd")) <= len(descriptors) + 2)


def test_requests_in_one_write_are_answered_in_order(daemons):
    daemon = daemons().start()
    with Wire(daemon) as wire:
        wire.send(requests.Create(None, records.GenParams()), requests.List())
        session = wire.receive().session
        assert wire.receive().ids == (session,)
        wire.send(
            requests.AppendMessage(session, 1, "One."),
            requests.Generate(session, 30),
            requests.AppendMessage(session, 1, "Two."),
            requests.Generate(session, 0),
            requests.Read(session, 0),
            requests.Read(999, 0),
            requests.Purge(session, 0, PurgeMode.REROOT),
            requests.Read(session, 0),
        )
        assert isinstance(wire.receive(), responses.Committed)
        *deltas, summary = wire.until(responses.Generated)
        assert tuple(delta.event for delta in deltas) == summary.events
        assert wire.receive().event.body.text == "Two."
        assert wire.receive() == responses.Generated((), 0, 0, 0)
        assert kinds(wire.receive().events)[-1] == "Message"
        assert wire.receive().message.startswith("unknown session 999")
        assert wire.receive() == responses.Purged((session,))
        assert "was purged" in wire.receive().message


def test_a_client_that_has_said_all_gets_its_whole_reply(daemons):
    daemon = daemons(worker_argv=fake(delay_us=2000)).start()
    with daemon.client() as client:
        session = create(client)
        say(client, session, "Go.")
    with Wire(daemon) as wire:
        wire.send(requests.Generate(session, 200), requests.List())
        wire.socket.shutdown(socket.SHUT_WR)
        *_, summary = wire.until(responses.Generated)
        assert summary.tokens_generated == 200
        assert wire.receive() == responses.Sessions((session,))
        assert wire.receive() is None


@pytest.mark.parametrize("stage", ["opener", "queue", "prefill", "decode"])
def test_a_client_that_leaves_at_each_stage(daemons, stage):
    """What it asked for is cancelled, with a record that says so, and the lane is free for others."""
    delay = 20000 if stage == "prefill" else 2000
    daemon = daemons(max_batch=1, worker_argv=fake(delay_us=delay)).start()
    with daemon.client() as client:
        session, other = create(client), create(client)
        say(client, session, "Go. " * (100 if stage == "prefill" else 1))
        client.call(requests.Append(other, None, (5, 6, 7)))
        holder = Asked(daemon, other, 1500) if stage == "queue" else None
        if holder is not None:
            holder.wait_for(1)
        with Wire(daemon) as wire:
            wire.send(requests.Generate(session, 1500))
            if stage in ("queue", "prefill"):
                until(lambda: "GenerationPrompt" in kinds(client.read(session)))
            elif stage == "decode":
                assert isinstance(wire.receive(), responses.Delta)
        if holder is not None:
            until(lambda: kinds(client.read(session))[-1] == "Generated" or holder.end is not None)
            client.call(requests.Cancel(other))
            assert holder.finish().finish == 4
        if stage == "opener":
            # It may be gone before its request was read; then nothing has happened.
            idle(client, session)
        else:
            until(lambda: kinds(client.read(session))[-1] == "Generated")
            until(lambda: client.read(session)[-1].body.finish == 4)
            idle(client, session)
        assert generate(client, other, 2).tokens_generated == 2
        assert generate(client, session, 2).tokens_generated == 2
    assert daemon.stop() == 0


def test_a_client_that_leaves_while_no_worker_is_there(daemons, tmp_path):
    mood = tmp_path / "mood"
    daemon = daemons(worker_argv=flaky(mood)).start()
    with daemon.client() as client:
        session = create(client)
        say(client, session, "Go.")
        mood.write_text("hang")
        kill_worker(daemon)
        until(lambda: len(daemon.workers()) == 1)
        with Wire(daemon) as wire:
            wire.send(requests.Generate(session, 1500))
            until(lambda: "GenerationPrompt" in kinds(client.read(session)))
        mood.unlink()
        idle(client, session)
        assert generate(client, session, 2).tokens_generated == 2


def test_a_subscriber_that_never_reads_lags_and_holds_no_lane(daemons):
    daemon = daemons(max_batch=1, max_context=8192).start()
    with daemon.client() as client, Wire(daemon) as deaf:
        session = create(client)
        say(client, session, "Go.")
        deaf.send(requests.Subscribe(session, 0, True))
        assert isinstance(deaf.receive(), responses.Subscribed)
        for _ in range(3):
            assert generate(client, session, 2000).tokens_generated == 2000
        events = client.read(session)
        *messages, ended = deaf.until(responses.SubEnded)
        assert ended.reason == "lagged"
        got = [message.event for message in messages if isinstance(message, responses.SubEvent)]
        assert got == list(events[: len(got)])
        assert len(got) < len(events)
        deaf.send(requests.List())  # the connection lives on
        assert deaf.receive() == responses.Sessions((session,))


def test_unsubscribing(daemons):
    daemon = daemons(worker_argv=fake(delay_us=500)).start()
    with daemon.client() as client, Wire(daemon) as wire:
        session = create(client)
        say(client, session, "Go.")
        reply = Asked(daemon, session, 300)
        ids = []
        for _ in range(5):
            wire.send(requests.Subscribe(session, 0, True))
            ids.append(wire.until(responses.Subscribed)[-1].sub)
        assert ids == sorted(set(ids))
        for sub in reversed(ids):
            wire.send(requests.Unsubscribe(sub))
        answered, ended = 0, []
        while answered < 5 or len(ended) < 5:
            response = wire.receive()
            answered += isinstance(response, responses.Unsubscribed)
            if isinstance(response, responses.SubEnded):
                assert response.reason == "unsubscribed"
                ended.append(response.sub)
        assert sorted(ended) == ids
        assert reply.finish().tokens_generated == 300
        wire.send(requests.Unsubscribe(ids[0]), requests.Unsubscribe(12345))
        for _ in range(2):
            assert wire.receive().message.startswith("no subscription ")
        with Wire(daemon) as stranger:
            wire.send(requests.Subscribe(session, 0, False))
            sub = wire.until(responses.Subscribed)[-1].sub
            stranger.send(requests.Unsubscribe(sub))
            assert stranger.receive().message == f"no subscription {sub} on this connection"


def test_two_hundred_subscribers(daemons):
    daemon = daemons().start()
    with daemon.client() as client:
        session = create(client)
        say(client, session, "Go.")
        followers = [Following(daemon, session, provisional=number % 2 == 0) for number in range(200)]
        generate(client, session, 50)
        events = client.read(session)
        client.ask(requests.Purge(session, 0, PurgeMode.REROOT), responses.Purged)
        for follower in followers:
            assert follower.finish() == "purged"
            assert tuple(follower.events[: len(events)]) == events
    still_serves(daemon)


def test_purges_and_generations_in_a_race(daemons):
    """Whoever comes first, nobody else's reply suffers, and no purged session generates."""
    daemon = daemons(max_batch=3, worker_argv=fake(delay_us=500)).start()
    with daemon.client() as client:
        bystander = create(client)
        say(client, bystander, "Go.")
        steady = Asked(daemon, bystander, 1500)
        for _ in range(40):
            session = create(client)
            say(client, session, "Go.")
            with Wire(daemon) as wire:
                wire.send(requests.Generate(session, 500))
                client.ask(requests.Purge(session, 0, PurgeMode.REROOT), responses.Purged)
                response = wire.receive()
                while isinstance(response, responses.Delta):
                    response = wire.receive()
                if isinstance(response, responses.Err):
                    assert "was purged" in response.message
                else:
                    assert response.finish == 4
            assert "was purged" in err(client, requests.Read(session, 0))
        idle(client, bystander)  # cancels it
        assert steady.finish().tokens_generated
        assert client.read(bystander)[-len(steady.events) :] == tuple(steady.events)


def test_reads_of_descendants_in_a_race_with_purges(daemons):
    """Records move while somebody reads them; that is no damage."""
    daemon = daemons().start()
    with daemon.client() as client:
        for _ in range(8):
            root = create(client)
            for number in range(30):
                client.call(requests.Append(root, f"number {number}", (5, 6, number)))
            child = client.ask(requests.Fork(root, 25, None), responses.Created).session
            grandchild = client.ask(requests.Fork(child, 26, None), responses.Created).session
            before = client.read(grandchild)
            with Wire(daemon) as reading:
                reading.send(*[requests.Read(grandchild, 0)] * 40)
                client.ask(requests.Purge(root, 0, PurgeMode.REROOT), responses.Purged)
                for _ in range(40):
                    assert reading.receive() == responses.Events(before)
