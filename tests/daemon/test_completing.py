"""Fill-in-the-middle over every transport, on a tiny vocabulary with markers (spec: wire-facts, 8.15)."""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import time

import pytest
import trio
from prometheus_client.parser import text_string_to_metric_families

from superfluid.daemon.replies.completing import KEPT
from superfluid.engine.fake_model import FakeModel
from superfluid.model.fim import FimDialect
from superfluid.model.text import TextStream
from superfluid.model.vocabulary import Vocabulary
from superfluid.protocol import postcard, requests, responses
from superfluid.protocol.codes import FimMode
from superfluid.protocol.frames import frame
from superfluid_cli.client import ServerSaid
from tests.model import tiny_gguf
from tests.support.daemon import DEADLINE, Daemon, create, drawn, generate
from tests.web.server import Web, ask, fake, run, say

MARKERS = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|fim_pad|>")
LOW, PLAIN = 13, 15
"""The fake draws the last two markers and plain tokens, or plain ones alone."""

RATE, BURST = 0.001, 12


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tiny_gguf.write(
        tmp_path_factory.mktemp("fim") / "fim.gguf", extra_controls=MARKERS, layers=1, embedding=32
    )


@pytest.fixture(scope="module")
def vocabulary(path):
    with Vocabulary(path) as vocabulary:
        yield vocabulary


@pytest.fixture(scope="module")
def web(path, vocabulary, tmp_path_factory):
    """Answers at once; a few completions for each connection, and for all of /web/rpc, and then hardly any."""
    web = Web(
        tmp_path_factory.mktemp("quick"),
        model=str(path),
        worker_argv=fake(vocabulary=vocabulary.size, low=LOW),
        completion_rate=RATE,
        completion_burst=BURST,
    )
    yield web
    web.close()


@pytest.fixture(scope="module")
def slow(path, vocabulary, tmp_path_factory):
    """Takes 20 ms a row and never ends by itself; one lane."""
    worker = fake(vocabulary=vocabulary.size, low=PLAIN, delay_us=20_000)
    web = Web(tmp_path_factory.mktemp("slow"), model=str(path), worker_argv=worker, max_batch=1)
    yield web
    web.close()


def oracle(vocabulary, request):
    """What the fake draws, up to what ends a middle."""
    dialect, model = FimDialect.of(vocabulary), FakeModel(vocabulary=vocabulary.size, low=LOW)
    tokens = [*dialect.prompt(vocabulary, request.prefix, request.suffix, FimMode(request.mode))]
    middle = []
    while len(middle) < request.max_tokens:
        token = model.oracle([*tokens, *middle], None)
        if token in dialect.ends:
            break
        middle.append(token)
    return tuple(middle)


def text_of(vocabulary, tokens):
    text = TextStream()
    return "".join(text.feed(vocabulary.piece(token)) for token in tokens)


def some(vocabulary, low, high, max_tokens=64):
    """A request whose middle has from `low` to `high` tokens."""
    made = (requests.Complete(f"def f{n}(", "\n", 0, max_tokens) for n in itertools.count())
    return next(request for request in made if low <= len(oracle(vocabulary, request)) <= high)


def metric(daemon, name, **labels):
    with daemon.client() as client:
        text = client.ask(requests.Metrics(), responses.Text).text
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == f"superfluid_{name}" and sample.labels == labels:
                return sample.value
    raise AssertionError(f"no {name} {labels}")


def until(condition):
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.02)


@pytest.mark.parametrize("mode", [0, 1])
def test_the_middle_is_what_the_model_draws(web, vocabulary, mode):
    request = requests.Complete("def f(x):\n", "\n    return y\n", mode, 9)
    middle = oracle(vocabulary, request)
    with web.daemon.client() as client:
        first = client.ask(request, responses.Completion)
        assert first == responses.Completion(text_of(vocabulary, middle), middle, False, False)
        assert client.ask(request, responses.Completion) == responses.Completion(first.text, middle, True, False)


def test_a_marker_ends_it(web, vocabulary):
    request = some(vocabulary, 3, 60)
    middle = oracle(vocabulary, request)
    with web.daemon.client() as client:
        assert client.ask(request, responses.Completion) == responses.Completion(
            text_of(vocabulary, middle), middle, False, False
        )


def test_what_asks_for_something_else_is_no_hit(web, vocabulary):
    with web.daemon.client() as client:
        for request in (
            requests.Complete("a", "b", 0, 4),
            requests.Complete("a", "b", 0, 5),
            requests.Complete("a", "b", 1, 5),
            requests.Complete("ab", "", 1, 5),
        ):
            reply = client.ask(request, responses.Completion)
            assert (reply.tokens, reply.cached) == (oracle(vocabulary, request), False)


def test_the_latest_answers_are_remembered(web):
    def cached(numbers):
        """Whether each was; on connections of their own, a dozen each."""
        found = {}
        for start in range(0, len(numbers), BURST):
            with web.daemon.client() as client:
                for number in numbers[start : start + BURST]:
                    order = requests.Complete(f"lru {number}", "", 0, 1)
                    found[number] = client.ask(order, responses.Completion).cached
        return found

    assert not any(cached(range(KEPT)).values())
    assert cached([0, 1]) == {0: True, 1: True}
    assert cached([KEPT, KEPT + 1]) == {KEPT: False, KEPT + 1: False}
    assert cached([0, 1, KEPT + 1, 2, 3]) == {0: True, 1: True, KEPT + 1: True, 2: False, 3: False}


def test_nothing_is_asked_of_the_model_for_no_tokens(web):
    with web.daemon.client() as client:
        assert client.ask(requests.Complete("a", "b", 0, 0), responses.Completion) == responses.Completion(
            "", (), False, False
        )


def test_refusals(web):
    with web.daemon.client() as client:
        for request, reason in (
            (requests.Complete("a", "b", 2, 4), "unknown FIM mode 2"),
            (requests.Complete("a" * 3000, "b", 0, 4), "and the window 2048"),
            (requests.Complete("a" * 5_000_000, "b", 0, 4), "at least"),
        ):
            with pytest.raises(ServerSaid, match=reason):
                client.call(request)


def test_nothing_is_kept_in_the_log(web):
    with web.daemon.client() as client:
        client.ask(requests.Complete("a secret place", "b", 0, 4), responses.Completion)
        assert client.ask(requests.List(), responses.Sessions).ids == ()
    kept = b"".join(file.read_bytes() for file in web.daemon.sessions.rglob("*") if file.is_file())
    assert b"a secret place" not in kept


def test_each_connection_has_its_measure(web):
    request = requests.Complete("x", "y", 0, 2)
    before = metric(web.daemon, "fim_completions_total", result="throttled")
    with web.daemon.client() as one, web.daemon.client() as other:
        for _ in range(BURST):
            one.ask(request, responses.Completion)
        throttled = one.ask(request, responses.Throttled)
        assert 0 < throttled.retry_after_ms <= 1000 / RATE
        other.ask(request, responses.Completion)
        one.ask(requests.List(), responses.Sessions)  # only completions are metered
    assert metric(web.daemon, "fim_completions_total", result="throttled") == before + 1
    assert metric(web.daemon, "fim_completions_total", result="cached") >= BURST


def test_rpc_has_one_measure_for_all(web):
    order = {"Complete": {"prefix": "x", "suffix": "y", "mode": 0, "max_tokens": 2}}
    for _ in range(BURST):
        assert "Completion" in web.rpc(order)
    status, headers, body = web.post("/web/rpc", order)
    assert status == 429
    wait = json.loads(body)["Throttled"]["retry_after_ms"]
    assert int(headers["retry-after"]) == -(-wait // 1000)

    async def talk():
        async with web.socket() as one, web.socket() as other:
            for _ in range(BURST):
                assert "Completion" in await ask(one, order)
            assert "Throttled" in await ask(one, order)
            assert "Completion" in await ask(other, order)

    run(talk)


@contextlib.contextmanager
def asking_socket(web, order):
    """A client of the unix socket that has asked and not read."""
    with socket.socket(socket.AF_UNIX) as stream:
        stream.connect(str(web.daemon.socket))
        stream.sendall(frame(postcard.encode(requests.Request, requests.Complete(**order))))
        yield


@contextlib.contextmanager
def asking_rpc(web, order):
    body = json.dumps({"Complete": order}).encode()
    head = ["POST /web/rpc HTTP/1.1", "Host: localhost", *web.auth, "Content-Type: application/json"]
    head.append(f"Content-Length: {len(body)}")
    with web.connection() as stream:
        stream.sendall("\r\n".join(head).encode() + b"\r\n\r\n" + body)
        yield


@pytest.mark.parametrize("asking", [asking_socket, asking_rpc])
def test_who_hangs_up_cancels(slow, asking):
    order = {"prefix": asking.__name__, "suffix": "y", "mode": 0, "max_tokens": 1900}
    before = metric(slow.daemon, "decode_tokens_total")
    with asking(slow, order):
        until(lambda: metric(slow.daemon, "lanes_active") == 1)
        with asking(slow, {**order, "prefix": "waits"}):
            until(lambda: metric(slow.daemon, "queue_depth", **{"class": "inline_completion"}) == 1)
        until(lambda: metric(slow.daemon, "queue_depth", **{"class": "inline_completion"}) == 0)
    until(lambda: metric(slow.daemon, "lanes_active") == 0)
    assert metric(slow.daemon, "decode_tokens_total") - before < 1500


def test_a_web_socket_that_closes_cancels(slow):
    before = metric(slow.daemon, "decode_tokens_total")

    async def talk():
        async with slow.socket() as ws:
            await say(ws, {"Complete": {"prefix": "ws", "suffix": "y", "mode": 0, "max_tokens": 1900}})
            await trio.to_thread.run_sync(until, lambda: metric(slow.daemon, "lanes_active") == 1)

    run(talk)
    until(lambda: metric(slow.daemon, "lanes_active") == 0)
    assert metric(slow.daemon, "decode_tokens_total") - before < 1500


def test_a_deadline_cuts_it_off(path, vocabulary, tmp_path):
    worker = fake(vocabulary=vocabulary.size, low=PLAIN, delay_us=20_000)
    settings = {"model": str(path), "worker_argv": worker, "completion_deadline_ms": 1500}
    request = requests.Complete("x", "y", 0, 1900)
    with Daemon(tmp_path, **settings) as daemon, daemon.client() as client:
        for _ in range(2):  # what was cut off is not remembered
            reply = client.ask(request, responses.Completion)
            assert reply == responses.Completion("", (), cached=False, expired=True)
        assert metric(daemon, "fim_completions_total", result="expired") == 2
        short = client.ask(requests.Complete("x", "y", 0, 2), responses.Completion)
        assert (len(short.tokens), short.expired) == (2, False)


def test_a_real_model_fills_in_and_finds_its_prefix_warm(path, vocabulary, tmp_path):
    prefix = "the user hello there you are " * 12
    with Daemon(tmp_path, model=str(path)) as daemon, daemon.client() as client:
        first = client.ask(requests.Complete(prefix, "\n", 0, 12), responses.Completion)
        dialect = FimDialect.of(vocabulary)
        session = create(client)
        prompt = dialect.prompt(vocabulary, prefix, "\n", FimMode.PSM)
        client.ask(requests.Append(session, None, prompt), responses.Committed)
        expected = list(itertools.takewhile(lambda t: t not in dialect.ends, drawn(generate(client, session, 12))))
        assert list(first.tokens) == expected
        before = metric(daemon, "warm_prefix_tokens_total")
        client.ask(requests.Complete(prefix + "hello", "\n", 0, 4), responses.Completion)
        assert metric(daemon, "warm_prefix_tokens_total") - before > len(prompt) - 20
