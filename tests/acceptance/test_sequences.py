"""Random sequences of session verbs: what a daemon tells is what the specification says, request by request."""

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from superfluid.engine.fake_model import FakeModel
from superfluid.protocol import jsonform
from superfluid.protocol.requests import Request
from superfluid.protocol.responses import Response
from tests.acceptance.inside import Inside, opened
from tests.acceptance.model import Model
from tests.acceptance.scene import REPLIES, TOOLS, prepared
from tests.acceptance.talks import fields_of, name_of
from tests.durability.house import Wire
from tests.support.daemon import Daemon

WINDOW = 2048
SETTINGS = {"end_every": 12, "delay_us": 50}

PARAMS = st.sampled_from(
    [
        {"temperature": 0.0, "top_p": 1.0, "min_p": 0.0, "top_k": 0, "seed": 0},
        {"temperature": 0.75, "top_p": 0.5, "min_p": 0.0, "top_k": 5, "seed": 3},
        {"temperature": 0.75, "top_p": 0.5, "min_p": 0.0, "top_k": 5, "seed": (1 << 64) - 1},
    ]
)
TEXTS = st.sampled_from(["", "Hi.", "Grüße, 世界 🎈", "<|im_end|>", "one two three " * 5])
QUESTIONS = st.sampled_from([text for text in REPLIES if isinstance(text, str)])


def pick(data, options, label):
    """One of `options`. How many there are may differ from run to run, since ticks cut a reply into records: what is
    drawn does not depend on it."""
    return options[data.draw(st.integers(0, 999), label=label) % len(options)]


def within(data, low, high, label):
    """A number from `low` to `high`, likewise."""
    return pick(data, range(low, high + 1), label)


class Verbs(RuleBasedStateMachine):
    """`house` is set by the subclasses: it answers a request with a list of responses."""

    def __init__(self):
        super().__init__()
        model = prepared(**SETTINGS)
        self.path, self.options = model["model"], model["worker_argv"][-1]
        _, vocabulary = opened(self.path)
        controls = {token: text.encode() for text, token in vocabulary.control.items()}
        self.model = Model(
            WINDOW, FakeModel.parse(self.options), lambda token: controls.get(token) or vocabulary.piece(token)
        )
        self.subs = {}

    # --- plumbing -------------------------------------------------------------------------------------------------

    def ask(self, name, **fields):
        request = {name: fields} if fields else name
        *others, reply = self.house.ask(request)
        assert not others
        self.model.check(request, reply)
        for session in self.model.unsettled():
            self.model.settle(session, self.log(session))
        return reply

    def log(self, session, cursor=0):
        (reply,) = self.house.ask({"Read": {"session": session, "cursor": cursor}})
        return reply["Events"]["events"]

    def some(self, data):
        """A session, mostly a living one."""
        strangers = [0, 99_999, *sorted(self.model.purged)]
        living = self.model.living
        return pick(data, living * 4 + strangers if living else strangers, "session")

    def length(self, session):
        known = self.model.sessions.get(session)
        return len(known.log) if known is not None else 3

    def call(self, data, session):
        """A tool call of the session, mostly."""
        known = self.model.sessions.get(session)
        ids = list(known.calls) if known is not None else []
        return pick(data, ids * 6 + [0, 1, 2, 50], "call")

    def caller(self, data):
        """A session, mostly one whose model has called."""
        callers = [id for id, s in sorted(self.model.sessions.items()) if s.calls]
        return pick(data, callers, "caller") if callers else self.some(data)

    # --- verbs ----------------------------------------------------------------------------------------------------

    @initialize()
    def begin(self):
        self.ask("Create", parent=None, params=PARAMS.elements[0])

    @rule(data=st.data(), child=st.booleans(), params=PARAMS)
    def create(self, data, child, params):
        self.ask("Create", parent=self.some(data) if child else None, params=params)

    @rule(data=st.data(), role=st.sampled_from([0, 1, 1, 1, 2, 2, 3, 9]), text=TEXTS)
    def append_message(self, data, role, text):
        self.ask("AppendMessage", session=self.some(data), role=role, text=text)

    @rule(data=st.data(), text=st.none() | TEXTS, span=st.lists(st.integers(20, 350), max_size=3))
    def append(self, data, text, span):
        self.ask("Append", session=self.some(data), text=text, span=span)

    @rule(
        data=st.data(), text=st.none() | TEXTS, tools=st.sampled_from([[], TOOLS[:1], TOOLS, ["{"], [TOOLS[0], "7"]])
    )
    def append_system(self, data, text, tools):
        self.ask("AppendSystem", session=self.some(data), text=text, tools=tools)

    @rule(data=st.data(), question=QUESTIONS, parts=st.sampled_from([(200,), (200,), (30, 200), (5, 25, 200)]))
    def ask_the_model(self, data, question, parts):
        """A question that has a reply, which may be cut and continued."""
        session = self.some(data)
        self.ask("AppendMessage", session=session, role=1, text=question)
        for max_tokens in parts:
            self.answer(session, max_tokens)

    @rule(data=st.data(), role=st.integers(0, 4), kind=st.integers(0, 8), text=TEXTS)
    def append_block(self, data, role, kind, text):
        payload = json.dumps({"path": text, "title": text, "message": text}) if role else text
        self.ask("AppendBlock", session=self.some(data), role=role, kind=kind, payload=payload)

    @rule(data=st.data(), max_tokens=st.sampled_from([0, 1, 3, 9, 20]))
    def generate(self, data, max_tokens):
        self.answer(self.some(data), max_tokens)

    def answer(self, session, max_tokens):
        before = self.length(session)
        replies = self.house.ask({"Generate": {"session": session, "max_tokens": max_tokens}})
        more = self.log(session, before) if session in self.model.sessions else []
        self.model.check_generation(session, max_tokens, replies, more, False)

    @precondition(lambda self: any(s.tokens and not s.questions for s in self.model.sessions.values()))
    @rule(data=st.data())
    def generate_and_cancel(self, data):
        able = [id for id, s in sorted(self.model.sessions.items()) if s.tokens and not s.questions]
        session = pick(data, able, "session")
        before = self.length(session)
        replies, told = self.house.cut({"Generate": {"session": session, "max_tokens": 60}})
        assert told == "Cancelling" or "no generation in flight" in told["Err"]["message"]
        self.model.check_generation(session, 60, replies, self.log(session, before), told == "Cancelling")

    @rule(data=st.data())
    def cancel(self, data):
        self.ask("Cancel", session=self.some(data))

    def branch(self, data, name, **fields):
        """A new session, which may have to show at once what it has inherited."""
        reply = self.ask(name, **fields)
        goes_on = data.draw(st.booleans(), label="goes on")
        if name_of(reply) == "Created" and goes_on:
            child = reply["Created"]["session"]
            self.ask("Inspect", session=child)
            self.answer(child, 2)

    def point(self, data, session):
        """An event to cut at; often the end."""
        low = within(data, 0, self.length(session) + 1, "at")
        return self.length(session) if data.draw(st.booleans(), label="at the end") else low

    @rule(data=st.data(), params=st.none() | PARAMS)
    def fork(self, data, params):
        session = self.some(data)
        self.branch(data, "Fork", session=session, at_event=self.point(data, session), params=params)

    @rule(data=st.data())
    def trim(self, data):
        session = self.some(data)
        self.branch(data, "Trim", session=session, to_event=self.point(data, session))

    @rule(data=st.data(), params=st.none() | PARAMS, careful=st.booleans())
    def rebase(self, data, params, careful):
        session = self.some(data)
        length = self.length(session)
        edits = []
        at = 1 if careful else 0
        for _ in range(within(data, 0, 3, "edits")):
            first = within(data, at, max(at, length - 1), "from")
            to = within(data, first + careful, max(first + careful, length), "to")
            fields = {"from": first, "to": to}
            if data.draw(st.booleans(), label="replace"):
                role = pick(data, [0, 1, 2, 2 if careful else 3], "role")
                edits.append({"Replace": {**fields, "role": role, "text": "Anew."}})
            else:
                edits.append({"Drop": fields})
            at = to if careful else 0
        self.branch(data, "Rebase", session=session, edits=edits, params=params)

    @rule(
        data=st.data(),
        stale=st.sampled_from([0, 0, 0, 1]),
        title=st.none() | TEXTS,
        archived=st.none() | st.booleans(),
    )
    def set_meta(self, data, stale, title, archived):
        session = self.some(data)
        known = self.model.sessions.get(session)
        version = (known.version if known is not None else 0) + stale
        self.ask("SetMeta", session=session, expected_version=version, title=title, archived=archived)

    @rule(data=st.data(), qos=st.integers(0, 4), invariant=st.booleans())
    def set_qos(self, data, qos, invariant):
        self.ask("SetQos", **{"session": self.some(data), "class": qos, "batch_invariant": invariant})

    @rule(divisor=st.integers(0, 3))
    def set_background_rate(self, divisor):
        self.ask("SetBackgroundRate", divisor=divisor)

    @rule(data=st.data(), ttl=st.sampled_from([0, 1, 60_000, (1 << 64) - 1]))
    def pin(self, data, ttl):
        self.ask("Pin", session=self.some(data), ttl_ms=ttl)

    @rule(data=st.data(), text=TEXTS)
    def request_permission(self, data, text):
        session = self.caller(data)
        self.ask("RequestPermission", session=session, call_id=self.call(data, session), text=text)

    @rule(data=st.data(), granted=st.booleans())
    def respond_permission(self, data, granted):
        asking = [id for id, s in sorted(self.model.sessions.items()) if s.questions]
        session = pick(data, asking, "asking") if asking else self.some(data)
        known = self.model.sessions.get(session)
        questions = sorted(known.questions) if known is not None else []
        request = pick(data, questions * 5 + [0, 3], "request")
        self.ask("RespondPermission", session=session, request_id=request, granted=granted)

    @rule(
        data=st.data(),
        ways=st.lists(st.sampled_from(["result", "result", "outcome", "cancel"]), min_size=1, max_size=3),
        outcome=st.sampled_from([0, 1, 2, 2, 3]),
        text=TEXTS | st.just("rain"),
    )
    def settle_a_call(self, data, ways, outcome, text):
        """What may come for one call, and come again."""
        session = self.caller(data)
        call = {"session": session, "call_id": self.call(data, session)}
        for way in ways:
            match way:
                case "result":
                    self.ask("AppendToolResult", **call, content=text)
                case "outcome":
                    self.ask("AppendToolOutcome", **call, outcome=outcome, note=text)
                case _:
                    self.ask("RequestToolCancel", **call)
        self.ask("Ledger", session=session)

    @rule(data=st.data(), which=st.sampled_from(["OpenToolCalls", "Ledger", "Inspect", "Inspect"]))
    def look_at_one(self, data, which):
        self.ask(which, session=self.some(data))

    @rule(data=st.data())
    def read(self, data):
        session = self.some(data)
        self.ask("Read", session=session, cursor=within(data, 0, self.length(session) + 2, "cursor"))

    @rule(archived=st.booleans())
    def look_at_all(self, archived):
        self.ask("List")
        self.ask("Tree")
        self.ask("Sessions", include_archived=archived)

    @precondition(lambda self: len(self.model.sessions) > 2)
    @rule(data=st.data(), stale=st.sampled_from([0, 0, 0, 1]), mode=st.sampled_from(["Cascade", "Reroot", "Reroot"]))
    def purge(self, data, stale, mode):
        session = self.some(data)
        gone = self.ask("Purge", session=session, expected_generation=stale, mode=mode)
        for sub, (followed, _) in list(self.subs.items()):
            if followed in fields_of(gone).get("sessions", []):
                frames = self.house.subscription(sub, ended)
                assert frames[-1]["SubEnded"]["reason"] == "purged"
                del self.subs[sub]

    @rule(data=st.data(), provisional=st.booleans())
    def subscribe(self, data, provisional):
        session = self.some(data)
        cursor = within(data, 0, self.length(session) + 2, "cursor")
        (reply,) = self.house.ask({"Subscribe": {"session": session, "cursor": cursor, "provisional": provisional}})
        if session in self.model.sessions:
            self.subs[reply["Subscribed"]["sub"]] = (session, cursor)
        else:
            assert name_of(reply) == "Err"

    @precondition(lambda self: self.subs)
    @rule(data=st.data())
    def unsubscribe(self, data):
        sub = pick(data, sorted(self.subs), "sub")
        session, cursor = self.subs.pop(sub)
        self.followed(sub, session, cursor)
        (reply,) = self.house.ask({"Unsubscribe": {"sub": sub}})
        assert reply == "Unsubscribed"
        assert self.house.subscription(sub, ended)[-1]["SubEnded"]["reason"] == "unsubscribed"
        (reply,) = self.house.ask({"Unsubscribe": {"sub": sub}})
        assert f"no subscription {sub}" in reply["Err"]["message"]

    def followed(self, sub, session, cursor):
        """A subscription is told every event from its cursor on, once."""
        due = self.model.sessions[session].log[cursor:]

        def enough(frames):
            return sum("SubEvent" in frame for frame in frames) >= len(due)

        told = [frame["SubEvent"]["event"] for frame in self.house.subscription(sub, enough) if "SubEvent" in frame]
        assert told == due

    restarts = 1000
    """how many there may be"""

    @precondition(lambda self: self.restarts > 0)
    @rule()
    def restart(self):
        self.restarts -= 1
        self.check_subscriptions()
        self.subs.clear()
        self.house.stop()
        self.house.start()
        self.model.restarted()
        for session in self.model.living:
            self.ask("Inspect", session=session)

    def check_subscriptions(self):
        for sub, (session, cursor) in self.subs.items():
            self.followed(sub, session, cursor)

    def teardown(self):
        try:
            if hasattr(self, "house"):
                self.check_subscriptions()
                self.look_at_all(True)
                for session in self.model.living:
                    self.ask("Inspect", session=session)
        finally:
            self.leave()

    def leave(self):
        """Whatever was started ends."""


def ended(frames):
    return any("SubEnded" in frame for frame in frames)


class InsideVerbs(Verbs):
    """On the use cases in this process; a restart opens the store again."""

    def __init__(self):
        super().__init__()
        self.directory = tempfile.TemporaryDirectory(prefix="sf-")
        self.house = Inside(Path(self.directory.name), self.path, self.options, WINDOW)

    def leave(self):
        self.house.close()
        self.directory.cleanup()


class Outside:
    """A daemon behind its socket, as `Inside` shows one."""

    def __init__(self, directory):
        self.daemon = Daemon(directory, **prepared(**SETTINGS), max_context=WINDOW, max_batch=2)
        self.start()

    def start(self):
        self.daemon.start()
        self.subscribed = []
        self.wire = Wire(self.daemon)

    def stop(self):
        self.wire.socket.close()
        self.daemon.kill()

    def close(self):
        self.wire.socket.close()
        self.daemon.close()

    def receive(self):
        frame = jsonform.to_json(Response, self.wire.receive())
        if name_of(frame) in ("SubEvent", "SubProvisional", "SubEnded"):
            self.subscribed.append(frame)
            return None
        return frame

    def reply(self):
        while (frame := self.receive()) is None:
            pass
        return frame

    def ask(self, request):
        self.wire.send(jsonform.from_json(Request, request))
        replies = [self.reply()]
        while name_of(replies[-1]) == "Delta":
            replies.append(self.reply())
        return replies

    def cut(self, request):
        self.wire.send(jsonform.from_json(Request, request))
        replies = [self.reply()]
        with Wire(self.daemon) as other:
            other.send(jsonform.from_json(Request, {"Cancel": {"session": request["Generate"]["session"]}}))
            told = jsonform.to_json(Response, other.receive())
        while name_of(replies[-1]) == "Delta":
            replies.append(self.reply())
        return replies, told

    def subscription(self, sub, enough):
        def mine():
            return [frame for frame in self.subscribed if next(iter(frame.values()))["sub"] == sub]

        while not enough(mine()):
            assert self.receive() is None
        return mine()


class OutsideVerbs(Verbs):
    """On a daemon of its own, over the socket; a restart kills it, and takes seconds."""

    restarts = 1

    def __init__(self):
        super().__init__()
        self.directory = tempfile.TemporaryDirectory(prefix="sf-")
        self.house = Outside(Path(self.directory.name))

    def leave(self):
        self.house.close()
        self.directory.cleanup()


def run(machine, examples, steps):
    chosen = settings(max_examples=examples, stateful_step_count=steps, report_multiple_bugs=False)
    run_state_machine_as_test(machine, settings=chosen)


@pytest.mark.timeout(900)  # what fails is made smaller first
def test_sequences():
    run(InsideVerbs, 60, 20)


@pytest.mark.heavy
@pytest.mark.timeout(3600)
def test_a_thousand_sequences():
    run(InsideVerbs, 1000, 30)


@pytest.mark.heavy
@pytest.mark.timeout(1800)
def test_sequences_over_the_socket():
    run(OutsideVerbs, 30, 30)
