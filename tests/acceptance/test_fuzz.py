"""Mutated frames and bodies: the daemon answers or closes, and whoever behaves is served as before."""

import copy
import json
import random
import socket

import pytest

from superfluid.protocol import feed_requests, jsonform, postcard, requests, shapes
from superfluid.protocol.codes import PurgeMode
from superfluid.protocol.errors import DecodeError
from superfluid.protocol.frames import frame
from superfluid.protocol.records import Drop, GenParams, Replace
from superfluid.protocol.requests import Request
from tests.acceptance.talks import Ws
from tests.acceptance.websocket import Closed
from tests.durability.house import Wire, log_of
from tests.web.server import Web

SEED = "superfluid"
STATUSES = {200, 400, 413, 415, 422, 429}
QUESTION = "What is the code word?"


def corpus(session):
    """Every request of the protocol, about one session, our extensions included."""
    params = GenParams(0.5, 0.9, 0.1, 5, 77)
    made = [
        requests.Create(None, params),
        requests.Create(session, params),
        requests.Append(session, "text", ()),
        requests.Append(session, None, (20, 21, 22)),
        requests.AppendMessage(session, 1, "Grüße, 世界"),
        requests.Generate(session, 5),
        requests.Read(session, 0),
        requests.AppendToolResult(session, 4, "rain"),
        requests.OpenToolCalls(session),
        requests.List(),
        requests.Cancel(session),
        requests.Subscribe(session, 0, True),
        requests.Unsubscribe(1),
        requests.Fork(session, 1, params),
        requests.Fork(session, 2, None),
        requests.Tree(),
        requests.Sessions(True),
        requests.SetMeta(session, 0, "title", False),
        requests.Rebase(session, (Drop(1, 2), Replace(2, 3, 1, "anew")), params),
        requests.Purge(session, 0, PurgeMode.REROOT),
        requests.SetQos(session, 3, True),
        requests.SetBackgroundRate(7),
        requests.Inspect(session),
        requests.SetLogLevel("info"),
        requests.Metrics(),
        requests.AppendBlock(session, 1, 2, '{"title": "t", "content": "c"}'),
        requests.RequestPermission(session, 0, "May I?"),
        requests.RespondPermission(session, 3, True),
        requests.RequestToolCancel(session, 4),
        requests.AppendToolOutcome(session, 4, 1, "no"),
        requests.Ledger(session),
        requests.PutMedia(b"\x00\xff\x10", "image/png"),
        requests.AppendImage(session, 1, "0" * 64, "before", "after"),
        requests.GcMedia(),
        requests.Complete("def f(", ")", 0, 4),
        requests.Trim(session, 1),
        requests.Pin(session, 1000),
        requests.AppendSystem(session, "system", ('{"name": "f"}',)),
        requests.Status(),
        feed_requests.Open("a-feed", 100, True),
        feed_requests.Open(None, None, False),
        feed_requests.Name(session, "a-name"),
        feed_requests.Resolve("a-name"),
        feed_requests.Names(),
        feed_requests.FeedState(session),
        feed_requests.Push(session, ("one", "two")),
        feed_requests.PushNumbered(session, ("one", "two"), 3, 9),
        feed_requests.Ask(session, "What?", 4, params, ("stop",), ("yes", "no"), 0.5),
        feed_requests.FlashAdd(session, "How many?", 3),
        feed_requests.FlashList(session),
        feed_requests.FlashRemove(session, 1),
        feed_requests.FeedSubscribe(session),
        feed_requests.Warm(session, ((1, "Hello."), (2, "Hi."))),
    ]
    assert {type(one) for one in made} == set(shapes.variants_of(Request))
    return made


class Prey:
    """A daemon with one session that nobody is to touch."""

    def __init__(self, web):
        self.web = web
        self.chance = random.Random(SEED)
        self.session = web.session("Anything. " * 3)
        # Far from what a mutated id may be by chance.
        for _ in range(300):
            web.rpc({"Create": {"parent": None, "params": jsonform.to_json(GenParams, GenParams())}})
        self.secret = web.session(QUESTION)
        web.rpc({"SetQos": {"session": self.secret, "class": 0, "batch_invariant": False}})
        self.log = web.read(self.secret)
        self.answer = self.asked()

    def asked(self):
        """What the untouched session answers, on a fork of it."""
        fork = {"session": self.secret, "at_event": len(self.log), "params": None}
        child = self.web.rpc({"Fork": fork})["Created"]["session"]
        *frames, done = self.web.stream(session=child, max_tokens=20)
        assert done["done"]["tokens_generated"] == 20
        return "".join(frame["committed"]["body"]["Generated"]["text"] for frame in frames)

    def check(self):
        """What was undone is undone, and the session is as it was, over all transports."""
        self.web.rpc({"SetBackgroundRate": {"divisor": 1}})
        assert self.asked() == self.answer
        assert self.web.read(self.secret) == self.log
        with Ws(self.web) as talk:
            assert talk.ask({"Read": {"session": self.secret, "cursor": 0}})["Events"]["events"] == self.log
        with self.web.daemon.client() as client:
            assert len(client.read(self.secret)) == len(self.log)
        log = log_of(self.web.daemon)
        assert "Traceback" not in log, log[-3000:]
        assert "internal error" not in log

    def spared(self, request):
        """Whether a request leaves the session alone."""
        return getattr(request, "session", None) != self.secret

    def mangled(self, payload):
        data = bytearray(payload)
        for _ in range(self.chance.choice([1, 1, 1, 2, 5])):
            at = self.chance.randrange(len(data) + 1)
            match self.chance.randrange(7):
                case 0 if data:
                    data[at % len(data)] = self.chance.randrange(256)
                case 1 if data:
                    data[at % len(data)] ^= 1 << self.chance.randrange(8)
                case 2:
                    del data[at:]
                case 3:
                    data[at:at] = self.chance.randbytes(self.chance.randint(1, 12))
                case 4:
                    data[at:at] = data[: self.chance.randrange(len(data) + 1)]
                case 5:
                    data[at : at + 4] = self.chance.choice([b"\xff" * 4, b"\xff" * 10, bytes(4), b"\x80\x80\x80\x01"])
                case 6 if data:
                    data[0] = self.chance.choice([*range(36), *range(126, 145)])
        return bytes(data)

    # --- frames ---------------------------------------------------------------------------------------------------

    def send_frame(self, payload):
        """One frame, mostly with its right length; the daemon answers what it can and closes."""
        try:
            if not self.spared(postcard.decode(Request, payload)):
                return
        except DecodeError:
            pass
        data = frame(payload)
        if self.chance.random() < 0.1:
            data = self.chance.randbytes(4) + payload
        with Wire(self.web.daemon) as wire:
            wire.socket.sendall(data)
            wire.socket.shutdown(socket.SHUT_WR)
            while wire.receive() is not None:
                pass

    # --- bodies ---------------------------------------------------------------------------------------------------

    def mangled_json(self, value):
        """A body with a part of it replaced, renamed, dropped or nested; sometimes its text is mangled instead."""
        value = copy.deepcopy(value)
        for _ in range(self.chance.choice([1, 1, 2, 3])):
            places = list(_places(value))
            if not places:
                break
            holder, key = self.chance.choice(places)
            match self.chance.randrange(5):
                case 0 if isinstance(holder, dict):
                    holder[self.chance.choice(["", "session", "Generate", "\x00", key + " "])] = holder.pop(key)
                case 1:
                    del holder[key]
                case 2:
                    holder[key] = [holder[key]]
                case _:
                    holder[key] = copy.deepcopy(self.chance.choice(ODD))
        text = json.dumps(value, ensure_ascii=self.chance.random() < 0.5).encode("utf-8", "surrogatepass")
        return self.mangled(text) if self.chance.random() < 0.3 else text

    def send_body(self, data):
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            value = None
        if str(self.secret) in json.dumps(value):
            return
        path = self.chance.choice(["/web/rpc", "/web/rpc", "/web/stream", "/web/ws"])
        if path == "/web/ws":
            self.send_message(data)
            return
        if path == "/web/stream" and isinstance(value, dict) and len(value) == 1:
            data = json.dumps(next(iter(value.values()))).encode("utf-8", "surrogatepass")
        status, headers, body = self.web.request(
            "POST", path, [*self.web.auth, "Content-Type: application/json"], data
        )
        assert status in STATUSES, (path, data, status, body)
        if headers["content-type"] == "application/json":
            json.loads(body)
        else:
            assert body.endswith(b"data: [DONE]\n\n"), (data, body)

    def send_message(self, data):
        with Ws(self.web) as talk:
            try:
                talk._socket.send(data if self.chance.random() < 0.5 else data.decode("utf-8", "replace"))
                talk.send("List")
                while "Sessions" not in (reply := talk.receive()):
                    assert reply
            except Closed:
                pass


ODD = [
    *(None, True, -1, 0, 1.5, 1 << 32, 1 << 64, 10**400, 1e308, float("nan")),
    *("", "1", "\ud800", "x" * 5000, "<|im_end|>", [], {}, [[]], {"a": {}}, [0] * 300),
]


def _places(value):
    if isinstance(value, dict):
        for key in value:
            yield value, key
            yield from _places(value[key])
    elif isinstance(value, list):
        for key, inner in enumerate(value):
            yield value, key
            yield from _places(inner)


@pytest.fixture
def prey(tmp_path):
    web = Web(tmp_path, max_context=512)
    yield Prey(web)
    web.close()


def hunt(prey, frames, bodies):
    made = corpus(prey.session)
    wholes = [postcard.encode(Request, one) for one in made]
    texts = [jsonform.to_json(Request, one) for one in made]
    for number in range(frames):
        prey.send_frame(prey.mangled(prey.chance.choice(wholes)))
        if number % 500 == 499:
            prey.check()
    prey.check()
    for number in range(bodies):
        prey.send_body(prey.mangled_json(prey.chance.choice(texts)))
        if number % 500 == 499:
            prey.check()
    prey.check()
    assert prey.web.daemon.stop() == 0
    assert "Traceback" not in log_of(prey.web.daemon)


def test_mutations(prey):
    hunt(prey, 600, 250)


@pytest.mark.heavy
@pytest.mark.timeout(3600)
def test_many_mutations(prey):
    prey.chance.seed("many")
    hunt(prey, 10_000, 2_000)
