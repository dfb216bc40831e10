"""The extension verbs over the socket, and `superfluid push` against daemons that are killed."""

import itertools
import os
import subprocess
import threading
from urllib.parse import urlsplit

import pytest

from superfluid.protocol import records, requests, responses
from superfluid.protocol.feed_responses import Connected, DataUpdated, FlashReady
from superfluid_cli.client import ServerSaid
from tests.cli.processes import PROGRAM
from tests.support.daemon import DEADLINE, FAKE, GREEDY, Daemon, create, say, tokens_of
from tests.web.server import fake

NAMES = (f"feed-{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    with Daemon(tmp_path_factory.mktemp("feeds"), worker_argv=FAKE) as daemon:
        yield daemon


@pytest.fixture
def client(daemon):
    with daemon.client() as client:
        yield client


@pytest.fixture
def feed(client):
    return opened(client).session


def opened(client, window=None, pre_decode=False):
    return client.ask(requests.Open(next(NAMES), window, pre_decode), responses.Opened)


def state(client, session):
    return client.ask(requests.FeedState(session), responses.Feed).feed


def push(client, session, *data):
    return client.ask(requests.Push(session, data), responses.Pushed)


def ingested(client, session, count):
    """The feed once `count` of its entries are taken."""
    while (report := state(client, session)).taken < count:
        pass
    return report


def entries(client, session):
    bodies = [event.body for event in client.read(session)]
    return [entry.text for body in bodies if isinstance(body, records.Ingested) for entry in body.entries]


def question(session, prompt="Which?", **fields):
    values = {"max_tokens": 4, "params": GREEDY, "stop": (), "fast_answer": (), "gap_threshold": 2.0}
    return requests.Ask(session, prompt, **(values | fields))


def refusal(client, request):
    with pytest.raises(ServerSaid) as caught:
        client.call(request)
    return str(caught.value)


# --- names --------------------------------------------------------------------------------------------------------


def test_names(client):
    name = next(NAMES)
    made = client.ask(requests.Open(name, 128, True), responses.Opened)
    assert made.name == name
    for key in (name, str(made.session)):
        assert client.ask(requests.Resolve(key), responses.Resolved).session == made.session
    assert "exists already" in refusal(client, requests.Open(name, None, False))
    report = state(client, made.session)
    assert (report.name, report.window, report.pre_decode, report.data_version) == (name, 128, True, 0)
    other = next(NAMES)
    event = client.ask(requests.Name(made.session, other), responses.Committed).event
    assert event.body == records.Named(other)
    assert refusal(client, requests.Resolve(name)) == f"no session is named '{name}'"
    assert client.ask(requests.Open(None, None, False), responses.Opened).name.startswith("sess_")
    names = client.ask(requests.Names(), responses.Names).names
    assert (made.session, other) in names
    assert name not in dict(names).values()


@pytest.mark.parametrize("name", ["", "1", "a b", "a/b", "x" * 129])
def test_bad_names(client, feed, name):
    for request in (requests.Open(name, None, False), requests.Name(feed, name)):
        assert "name" in refusal(client, request)


@pytest.mark.parametrize(
    "request_",
    [
        requests.FeedState(999),
        requests.Push(999, ("x",)),
        question(999),
        requests.FlashAdd(999, "q", 4),
        requests.FlashList(999),
        requests.FlashRemove(999, 1),
        requests.FeedSubscribe(999),
        requests.Name(999, "nobody"),
        requests.Warm(999, ((1, "x"),)),
        requests.Resolve("999"),
    ],
    ids=lambda request: type(request).__name__,
)
def test_no_such_session(client, request_):
    assert refusal(client, request_) == "unknown session 999"


# --- data ---------------------------------------------------------------------------------------------------------


def test_a_push_is_numbered_and_ingested(client, feed):
    first, second = push(client, feed, "a", "b"), push(client, feed, "c")
    assert (first.pushed, first.dropped, first.total_pushed) == (2, 0, 2)
    assert (second.pushed, second.total_pushed) == (1, 3)
    report = ingested(client, feed, 3)
    assert (report.total_pushed, report.pending, report.pending_bytes) == (3, 0, 0)
    assert 1 <= report.data_version <= 2
    assert report.tokens == report.data_end > 0
    assert report.base == 0
    assert entries(client, feed) == ["a", "b", "c"]
    assert "no entry" in refusal(client, requests.Push(feed, ()))


def test_any_session_can_be_pushed_to(client):
    session = client.ask(requests.Create(None, GREEDY), responses.Created).session
    push(client, session, "a")
    assert ingested(client, session, 1).name is None


def test_news(daemon, client, feed):
    with daemon.client() as follower:
        news = follower.feed_news(feed)
        connected = next(news).event
        assert (connected.session, connected.data_version, connected.flash_queries) == (feed, 0, 0)
        push(client, feed, "a")
        updated = next(news).event
        assert updated == DataUpdated(1, tokens=state(client, feed).tokens, pending=0)
        client.ask(requests.FlashAdd(feed, "Which?", 3), responses.Flash)
        ready = next(news).event
        assert (type(ready), ready.id, ready.query, ready.data_version) == (FlashReady, 1, "Which?", 1)
    with daemon.client() as follower:
        news = follower.feed_news(feed)
        assert [next(news).event for _ in range(2)] == [Connected(feed, connected.name, 1, 1), ready]
        generation = client.summary(feed).generation
        client.ask(requests.Purge(feed, generation, records.PurgeMode.REROOT), responses.Purged)
        assert next(news).reason == "purged"


def test_several_subscriptions_on_one_connection(client, feed):
    """Those of the log and those of the data are told apart, and end one by one."""
    subs = [client.ask(request, responses.Subscribed).sub for request in [requests.FeedSubscribe(feed)]]
    assert isinstance(client._receive(), responses.FeedEvent)
    client._send(requests.FeedSubscribe(feed))
    client._send(requests.Subscribe(feed, 99, False))
    replies = [client._receive() for _ in range(3)]
    subs += [reply.sub for reply in replies if isinstance(reply, responses.Subscribed)]
    assert len(set(subs)) == 3
    for sub in subs:
        client._send(requests.Unsubscribe(sub))
        assert {type(client._receive()) for _ in range(2)} == {responses.Unsubscribed, responses.SubEnded}
    assert refusal(client, requests.Unsubscribe(subs[0])) == f"no subscription {subs[0]} on this connection"


# --- questions ----------------------------------------------------------------------------------------------------


def test_a_question_leaves_no_trace(client, feed):
    push(client, feed, "a", "b")
    before = ingested(client, feed, 2)
    stream = tokens_of(client, feed)
    *pieces, answer = client.question(question(feed, max_tokens=9))
    assert answer.text == "".join(piece.text for piece in pieces)
    assert (answer.data_version, answer.completion_tokens) == (before.data_version, 9)
    assert answer.prompt_tokens > 0
    assert answer.flash_id is answer.confidence is answer.logit_gap is None
    *_, again = client.question(question(feed, max_tokens=9))
    assert again.text == answer.text
    assert tokens_of(client, feed) == stream
    assert state(client, feed).data_version == before.data_version


def test_a_question_that_makes_no_sense(client, feed):
    for fields in ({"prompt": ""}, {"max_tokens": 0}, {"params": records.GenParams(-1.0, 1.0, 0.0, 0, 0)}):
        with pytest.raises(ServerSaid):
            list(client.question(question(feed, **fields)))


def test_who_hangs_up_asks_no_more(tmp_path):
    with Daemon(tmp_path, worker_argv=fake(delay_us=2000), max_batch=1) as daemon, daemon.client() as client:
        feed = opened(client).session
        push(client, feed, "a")
        ingested(client, feed, 1)
        with daemon.client() as leaver:
            next(leaver.question(question(feed, max_tokens=1500)))
            assert "busy" in refusal(client, question(feed)) or "generating" in refusal(client, question(feed))
        while state(client, feed).busy:
            pass
        # Also where it still waits for its turn, behind one that goes on for long.
        with daemon.client() as talker, daemon.client() as leaver:
            chat = create(talker)
            talker.ask(requests.SetQos(chat, 0, False), responses.Committed)
            say(talker, chat, "Go on.")
            next(talker.generate(chat, 1500))
            leaver._send(question(feed))
            while not state(client, feed).busy:
                pass
            leaver.close()
            while state(client, feed).busy:
                pass
            running = client.ask(requests.Status(), responses.StatusReport).running
            assert [lane.session for lane in running] == [chat]
        *_, answer = client.question(question(feed, max_tokens=2))
        assert answer.completion_tokens == 2


# --- flash queries ------------------------------------------------------------------------------------------------


def test_flash_queries(client, feed):
    push(client, feed, "a")
    ingested(client, feed, 1)
    added = client.ask(requests.FlashAdd(feed, "Which?", 5), responses.Flash).entry
    assert (added.id, added.query, added.max_tokens) == (1, "Which?", 5)
    while not (entry := client.ask(requests.FlashList(feed), responses.Flashes).entries[0]).fresh:
        pass
    assert (entry.data_version, entry.value is not None, entry.confidence is not None) == (1, True, True)
    *_, answer = client.question(question(feed, "Which?"))
    assert (answer.text, answer.flash_id, answer.completion_tokens) == (entry.value, 1, 0)
    assert "Which?" not in refusal(client, requests.FlashAdd(feed, "Which?", 5))
    assert client.ask(requests.FlashRemove(feed, 1), responses.FlashGone) == responses.FlashGone(1, 0)
    assert client.ask(requests.FlashList(feed), responses.Flashes).entries == ()


def test_warming(client, feed):
    push(client, feed, "a")
    ingested(client, feed, 1)
    warmed = client.ask(requests.Warm(feed, ((1, "Hello."),)), responses.Warmed)
    assert warmed.finish == "warmed"
    assert client.ask(requests.Warm(feed, ((1, "Hello."),)), responses.Warmed).finish == "covered"
    assert refusal(client, requests.Warm(feed, ((7, "Hello."),))).startswith("unknown message role 7")


# --- pushes that survive ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("over", ["socket", "http"])
def test_a_push_outlives_its_daemons(tmp_path, over):
    """Killed in the middle, again and again: every line is in the log, once and in order."""
    lines = [f"line {number}" for number in range(3000)]
    daemon = Daemon(tmp_path, worker_argv=FAKE, http={"port": 0, "api_key": "LSK-1"})
    try:
        daemon.start()
        with daemon.client() as client:
            session = client.ask(requests.Open("feed", 512, False), responses.Opened).session
        daemon.settings["http"]["port"] = urlsplit(daemon.url()).port
        where = (
            ["--socket", str(daemon.socket)] if over == "socket" else ["--url", daemon.url(), "--api-key", "LSK-1"]
        )
        arguments = [*PROGRAM, "push", "feed", "--wait", *where]
        with subprocess.Popen(arguments, stdin=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0) as process:
            assert process.stdin is not None
            writer = threading.Thread(target=_write, args=(process.stdin, lines))
            writer.start()
            for life in range(1, 3):
                with daemon.client() as client:
                    ingested(client, session, life * 500)
                daemon.kill()
                daemon.start()
            writer.join(DEADLINE)
            assert process.wait(DEADLINE) == 0
        with daemon.client() as client:
            assert entries(client, session) == lines
            assert state(client, session).taken == len(lines)
    finally:
        daemon.close()


def test_many_pushes_make_one_session(daemon, client):
    name = next(NAMES)
    arguments = [*PROGRAM, "push", name, "--create", "--wait", "--socket", str(daemon.socket), "line"]
    pushes = [subprocess.Popen(arguments, stdin=subprocess.DEVNULL) for _ in range(4)]
    assert [push.wait(DEADLINE) for push in pushes] == [0] * 4
    session = client.ask(requests.Resolve(name), responses.Resolved).session
    assert entries(client, session) == ["line"] * 4


def _write(pipe, lines):
    with os.fdopen(os.dup(pipe.fileno()), "wb") as stream:
        stream.write("\n".join(lines).encode())
    pipe.close()


def test_numbers_go_on_after_a_restart(tmp_path):
    daemon = Daemon(tmp_path, worker_argv=FAKE)
    try:
        daemon.start()
        with daemon.client() as client:
            session = opened(client).session
            push(client, session, "a", "b")
            before = ingested(client, session, 2)
        daemon.kill()
        daemon.start()
        with daemon.client() as client:
            after = state(client, session)
            assert (after.taken, after.total_pushed, after.base) == (2, 2, 2)
            assert after.run != before.run
            assert push(client, session, "c").total_pushed == 3
            ingested(client, session, 3)
            assert entries(client, session) == ["a", "b", "c"]
    finally:
        daemon.close()
