"""The session API as a model: what its specification says each request does, on plain lists of events in JSON form.

`Model.check` is given a request and what a daemon told in reply, and raises AssertionError where the specification
says otherwise; then it remembers what was told. Token ids of rendered text are taken as told; that they are the whole
input, in order, is checked. Whatever a generation draws is checked token by token against the fake worker's oracle.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from superfluid.engine.fake_model import FakeModel
from superfluid.engine.sampling import draw, recipe
from superfluid.protocol.records import GenParams
from tests.acceptance.talks import fields_of, name_of

Json = Any

STREAM = ("Appended", "Message", "GenerationPrompt", "Generated", "ToolResult", "Block")
"""records whose span is on the model's input"""

KEPT_BY_REBASE = ("Appended", "Message", "GenerationPrompt", "Generated", "ToolParseFailure", "Block", "ToolUse")


class Refused(Exception):
    """The specification refuses; `str()` is part of the message."""


@dataclass
class Session:
    id: int
    params: Json
    parent: int | None = None
    fork_at: int = 0
    log: list[Json] = field(default_factory=list)
    qos: int = 2
    invariant: bool = False
    title: str | None = None
    archived: bool = False
    version: int = 0
    pin: int = 0
    calls: dict[int, Json] = field(default_factory=dict)
    questions: set[int] = field(default_factory=set)
    current: bool = True
    """whether it was written to since the daemon started"""

    @property
    def tokens(self) -> list[int]:
        return [token for event in self.log for token in span_of(event["body"])]

    @property
    def tail(self) -> Json:
        """The last record on the input."""
        return next((event["body"] for event in reversed(self.log) if span_of(event["body"])), None)

    def last(self, record: str, default: Json) -> Json:
        """The fields of the last record of a kind."""
        return next((fields_of(e["body"]) for e in reversed(self.log) if name_of(e["body"]) == record), default)

    @property
    def open_calls(self) -> list[Json]:
        return [[id, c["name"], c["arguments"]] for id, c in sorted(self.calls.items()) if c["state"] in (0, 1)]


def span_of(body: Json) -> list[int]:
    return fields_of(body)["span"] if name_of(body) in STREAM else []


def bare(body: Json) -> Json:
    """Inside a `Rerooted` prefix, an earlier one does not repeat what stands before it."""
    return {"Rerooted": {**body["Rerooted"], "prefix": []}} if name_of(body) == "Rerooted" else body


def _parsed(text: str) -> Json:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _called(text: str) -> tuple[str, Json] | None:
    """Name and arguments of a call as spelled; None for what is none, or takes mending."""
    value = _parsed(text)
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None
    return value["name"], value.get("arguments", {})


class Model:
    """`window` is how many tokens a session may hold, `fake` the worker's model, `piece` how tokens are spelled."""

    def __init__(self, window: int, fake: FakeModel, piece: Callable[[int], bytes]) -> None:
        self.window = window
        self.fake = fake
        self.piece = piece
        self.sessions: dict[int, Session] = {}
        self.purged: set[int] = set()
        self.digests: dict[str, int] = {}

    @property
    def living(self) -> list[int]:
        return sorted(self.sessions)

    def restarted(self) -> None:
        for session in self.sessions.values():
            session.current = False

    def check(self, request: Json, reply: Json) -> None:
        """For every request but Generate and those about subscriptions."""
        name, fields = name_of(request), fields_of(request)
        try:
            rule = getattr(self, f"_{name}")(**{key.replace("class", "qos"): value for key, value in fields.items()})
            refusal = ""
        except Refused as fault:
            refusal = str(fault)
        if refusal:
            assert name_of(reply) == "Err", (request, reply, refusal)
            assert refusal in reply["Err"]["message"], (request, reply, refusal)
            return
        kind, see = rule
        assert name_of(reply) == kind, (request, reply)
        see(fields_of(reply))

    # --- rules: what is refused, which response comes, and what it must hold ---------------------------------------

    def _live(self, session: int) -> Session:
        if session in self.purged:
            raise Refused(f"session {session} was purged")
        if session not in self.sessions:
            raise Refused(f"unknown session {session}")
        return self.sessions[session]

    def _Create(self, parent, params):
        if parent is not None:
            self._live(parent)
        child = Session(self._next(), params, parent)
        return "Created", lambda told: self._born(child, told, [{"Created": {"parent": parent, "params": params}}])

    def _Fork(self, session, at_event, params):
        parent = self._live(session)
        if not 1 <= at_event <= len(parent.log):
            raise Refused(f"1..={len(parent.log)}")
        child = self._child(parent, at_event, params)
        body = {"Forked": {"parent": session, "fork_at": at_event, "params": child.params}}
        return "Created", lambda told: self._born(child, told, [body])

    def _Trim(self, session, to_event):
        parent = self._live(session)
        if not 1 <= to_event <= len(parent.log):
            raise Refused(f"1..={len(parent.log)}")
        if to_event == len(parent.log):
            return self._Fork(session, to_event, None)
        return self._Rebase(session, [{"Drop": {"from": to_event, "to": len(parent.log)}}], None)

    def _Rebase(self, session, edits, params):
        if not edits:
            raise Refused("rebase edit spec invalid: no edits")
        parent = self._live(session)
        before = 0
        for edit in edits:
            fields = fields_of(edit)
            first, end = fields["from"], fields["to"]
            if first == 0:
                raise Refused("never include Created")
            if first >= end:
                raise Refused("empty range")
            if end > len(parent.log):
                raise Refused("beyond the parent's committed events")
            if first < before:
                raise Refused("must be sorted and non-overlapping")
            if fields.get("role", 0) > 2:
                raise Refused(f"unknown message role {fields['role']}")
            before = end
        start = fields_of(edits[0])["from"]
        child = self._child(parent, start, params)
        rebased = {"parent": session, "fork_at": start, "params": child.params, "edits": edits}
        return "Created", lambda told: self._born(
            child, told, [{"Rebased": rebased}, *self._copied(parent, child, edits)]
        )

    def _copied(self, parent, child, edits):
        """The records of a rebase after its own: what is kept, renumbered, and what replaces."""
        bodies, renamed = [], {}
        at = child.fork_at + 1
        for event in parent.log[child.fork_at :]:
            id, body = event["event_id"], event["body"]
            for edit in edits:
                fields = fields_of(edit)
                if name_of(edit) == "Replace" and fields["from"] == id:
                    bodies.append({"Message": {"role": fields["role"], "text": fields["text"], "span": ...}})
            if any(fields_of(edit)["from"] <= id < fields_of(edit)["to"] for edit in edits):
                continue
            if name_of(body) == "ToolResult":
                given = body["ToolResult"]
                if given["call_id"] in renamed:
                    bodies.append({"ToolResult": {**given, "call_id": renamed[given["call_id"]]}})
                else:
                    bodies.append({"Message": {"role": 3, "text": given["content"], "span": given["span"]}})
            elif name_of(body) in KEPT_BY_REBASE:
                if name_of(body) == "ToolUse":
                    renamed[id] = at + len(bodies)
                bodies.append(body)
        return bodies

    def _Append(self, session, text, span):
        self._live(session)
        if not span and not text:
            raise Refused("protocol: ")
        return self._commits(session, {"Appended": {"text": text, "span": span or ...}})

    def _AppendMessage(self, session, role, text):
        if role > 2:
            raise Refused(f"unknown message role {role}")
        self._live(session)
        return self._commits(session, {"Message": {"role": role, "text": text, "span": ...}})

    def _AppendSystem(self, session, text, tools):
        if text is None and not tools:
            raise Refused("protocol: ")
        for place, tool in enumerate(tools):
            if not isinstance(_parsed(tool), dict):
                raise Refused(f"tool {place} is not a function declaration")
        if self._live(session).tokens:
            raise Refused("AppendSystem must come before any other turn")
        return self._commits(session, {"Message": {"role": 0, "text": text or "", "span": ...}})

    def _AppendBlock(self, session, role, kind, payload):
        if role > 3:
            raise Refused(f"unknown message role {role}")
        if not 1 <= kind <= 7:
            raise Refused(f"unknown block kind {kind}")
        self._live(session)
        fields = {"role": role, "kind": kind, "payload": payload, "span": ..., "visibility_version": 2}
        return self._commits(session, {"Block": fields})

    def _Read(self, session, cursor):
        known = self._live(session)
        return "Events", lambda told: self._same(told["events"], known.log[cursor:])

    def _List(self):
        return "Sessions", lambda told: self._same(told["ids"], self.living)

    def _Tree(self):
        nodes = [[s.id, s.parent, s.fork_at] for _, s in sorted(self.sessions.items()) if not s.archived]
        return "Tree", lambda told: self._same(told["nodes"], nodes)

    def _Sessions(self, include_archived):
        shown = [self._summary(s) for _, s in sorted(self.sessions.items()) if include_archived or not s.archived]
        return "SessionList", lambda told: self._same(told["sessions"], shown)

    def _Inspect(self, session):
        s = self._live(session)

        def see(told):
            told = dict(told["inspection"])
            assert told.pop("tier") == "Cold"
            assert len(told.pop("store_id")) == 16
            self._same(
                told,
                {
                    "summary": self._summary(s),
                    "params": s.params,
                    "epoch": s.log[-1]["epoch"],
                    "last_finish": s.last("Generated", {"finish": 0})["finish"],
                    "qos_class": s.qos,
                    "batch_invariant": s.invariant,
                    "pin_deadline_unix_ms": s.pin,
                    "behavior_fingerprint": s.last("GenerationFingerprint", {"digest": None})["digest"],
                    "open_tool_calls": s.open_calls,
                    "tokens": s.tokens,
                    "events": s.log,
                    "wal_version": 2,
                },
            )

        return "Inspection", see

    def _SetMeta(self, session, expected_version, title, archived):
        s = self._live(session)
        if expected_version != s.version:
            raise Refused(f"version {s.version}")

        def see(told):
            assert told["version"] == s.version + 1
            s.version += 1
            s.title = s.title if title is None else title
            s.archived = s.archived if archived is None else archived
            self._note(s, {"MetaUpdated": {"version": s.version, "title": title, "archived": archived}})

        return "Meta", see

    def _SetQos(self, session, qos, batch_invariant):
        if qos > 3:
            raise Refused(f"unknown QoS class {qos}")
        s = self._live(session)
        kind, commit = self._commits(session, {"QosSet": {"class": qos, "batch_invariant": batch_invariant}})

        def see(told):
            commit(told)
            s.qos, s.invariant = qos, batch_invariant

        return kind, see

    def _SetBackgroundRate(self, divisor):
        return "Ack", lambda told: None

    def _Pin(self, session, ttl_ms):
        s = self._live(session)

        def see(told):
            s.pin = told["deadline_unix_ms"]
            assert (s.pin > 0) is (ttl_ms > 0)
            self._note(s, {"Pinned": {"deadline_unix_ms": s.pin}})

        return "Pinned", see

    def _Purge(self, session, expected_generation, mode):
        s = self._live(session)
        if expected_generation != 0:
            raise Refused("generation 0")
        gone = {session, *(self._below(session) if mode == "Cascade" else ())}

        def see(told):
            ids = told["sessions"]
            assert set(ids) == gone
            assert len(ids) == len(gone)
            for id in gone:  # descendants go before those that they came from
                parent = self.sessions[id].parent
                assert parent not in gone or ids.index(id) < ids.index(parent)
            if mode == "Reroot":
                for child in [c for c in self.sessions.values() if c.parent == session]:
                    inherited = child.log[: child.fork_at]
                    prefix = [[event["event_id"], bare(event["body"])] for event in inherited]
                    child.parent = None
                    self._note(child, {"Rerooted": {"purged_parent": session, "prefix": prefix}})
            for id in gone:
                del self.sessions[id]
            self.purged |= gone

        assert s.id in gone
        return "Purged", see

    def _Cancel(self, session):
        self._live(session)
        raise Refused(f"session {session} has no generation in flight")

    def _RequestPermission(self, session, call_id, text):
        s = self._live(session)
        if call_id:
            self._open_call(s, call_id)
        kind, commit = self._commits(session, {"PermissionRequest": {"call_id": call_id, "text": text}})

        def see(told):
            commit(told)
            s.questions.add(told["event"]["event_id"])

        return kind, see

    def _RespondPermission(self, session, request_id, granted):
        s = self._live(session)
        if request_id not in s.questions:
            raise Refused("is unknown or already answered")
        kind, commit = self._commits(session, {"PermissionResponse": {"request_id": request_id, "granted": granted}})

        def see(told):
            commit(told)
            s.questions.discard(request_id)

        return kind, see

    def _OpenToolCalls(self, session):
        s = self._live(session)
        return "ToolCalls", lambda told: self._same(told["calls"], s.open_calls)

    def _Ledger(self, session):
        s = self._live(session)
        shown = [[id, {**call, "lease_deadline_unix_ms": None}] for id, call in sorted(s.calls.items())]
        return "Ledger", lambda told: self._same(told["entries"], shown)

    def _own_call(self, s, call_id):
        if call_id < s.fork_at:
            raise Refused(f"tool call {call_id} belongs to an ancestor's timeline")
        if call_id not in s.calls:
            raise Refused(f"tool call {call_id} is unknown or already closed")
        return s.calls[call_id]

    def _open_call(self, s, call_id):
        call = self._own_call(s, call_id)
        if call["state"] not in (0, 1):
            raise Refused(f"tool call {call_id} is unknown or already closed")
        return call

    def _AppendToolResult(self, session, call_id, content):
        s = self._live(session)
        call = self._own_call(s, call_id)
        if call["state"] == 2:
            raise Refused(f"tool call {call_id} is unknown or already closed")
        if call["state"] not in (0, 1):
            return self._late(s, call_id, call, content)
        kind, commit = self._commits(session, {"ToolResult": {"call_id": call_id, "content": content, "span": ...}})

        def see(told):
            commit(told)
            call["state"] = 2

        return kind, see

    def _late(self, s, call_id, call, content):
        def see(told):
            assert f"tool call {call_id} is already terminal" in told["message"]
            note = f"late result: {len(content.encode())} bytes"
            self._note(s, {"ToolReconciliation": {"call_id": call_id, "note": note}})
            call["late_effects"] += 1
            call["state"] = 6 if call["state"] == 4 else call["state"]

        return "Err", see

    def _AppendToolOutcome(self, session, call_id, outcome, note):
        s = self._live(session)
        call = self._open_call(s, call_id)
        if outcome not in (1, 2):
            raise Refused("protocol: ")
        body = {"ToolOutcome": {"call_id": call_id, "outcome": outcome, "note": note}}
        kind, commit = self._commits(session, body)

        def see(told):
            commit(told)
            call["state"] = 3 if outcome == 1 else 4

        return kind, see

    def _RequestToolCancel(self, session, call_id):
        s = self._live(session)
        call = self._open_call(s, call_id)
        kind, commit = self._commits(session, {"ToolCancelRequested": {"call_id": call_id}})

        def see(told):
            commit(told)
            call["cancel_requested"], call["state"] = True, 1

        return kind, see

    # --- generations ----------------------------------------------------------------------------------------------

    def check_generation(
        self, session: int, max_tokens: int, replies: list[Json], more: list[Json], cut: bool
    ) -> None:
        """`more` is what the log has grown by; `cut` whether somebody else asked for its end meanwhile."""
        last = replies[-1]
        refusal = ""
        try:
            s = self._may_generate(session, max_tokens)
        except Refused as fault:
            refusal = str(fault)
        if refusal:
            assert name_of(last) == "Err", (last, refusal)
            assert refusal in last["Err"]["message"]
            assert len(replies) == 1
            assert more == []
            return
        assert name_of(last) == "Generated", last
        summary = fields_of(last)
        assert [fields_of(reply)["event"] for reply in replies[:-1]] == summary["events"]
        if s is None:
            assert summary == {"events": [], "tokens_generated": 0, "finish": 0, "warm_prefix": 0}
            assert more == []
            return
        opens = name_of(s.tail) in ("Message", "ToolResult") or (
            name_of(s.tail) == "Generated" and fields_of(s.tail)["finish"] == 1
        )
        known = s.last("GenerationFingerprint", {"digest": None})["digest"]
        due = [] if s.current else ["EpochBump"]
        names = [name_of(event["body"]) for event in more]
        if digest := next(
            (fields_of(e["body"])["digest"] for e in more if "GenerationFingerprint" in e["body"]), None
        ):
            due.append("GenerationFingerprint")
            assert digest != known
            self._learn(s.params, digest)
        else:
            self._learn(s.params, known)
        due += ["GenerationPrompt"] if opens else []
        assert names[: len(due)] == due, (names, due)
        drawn = more[len(due) :]
        assert drawn == summary["events"]
        before = self._turn(s)
        self._take(s, more)
        generated = [event["body"]["Generated"] for event in drawn if name_of(event["body"]) == "Generated"]
        assert [one["finish"] for one in generated] == [0] * (len(generated) - 1) + [summary["finish"]]
        self._check_calls(s, before, drawn, summary["finish"])
        tokens = [token for event in drawn for token in span_of(event["body"])]
        assert summary["tokens_generated"] == len(tokens) <= max_tokens
        start = len(s.tokens) - len(tokens)
        assert 0 <= summary["warm_prefix"] <= start
        self._check_draws(s, start)
        if tokens and tokens[-1] == self.fake.end:
            assert summary["finish"] == 1
        elif len(tokens) == max_tokens or len(s.tokens) == self.window:
            assert summary["finish"] == 2
        else:
            assert cut
            assert summary["finish"] == 4

    def _turn(self, s: Session) -> str:
        """What the reply that ends the stream says so far, markers and all; nothing where that reply is finished."""
        spans: list[list[int]] = []
        for event in reversed(s.log):
            body = event["body"]
            if span_of(body) and (name_of(body) != "Generated" or (spans and body["Generated"]["finish"] == 1)):
                break
            spans.insert(0, span_of(body))
        tokens = [token for span in spans for token in span]
        if tokens and tokens[-1] == self.fake.end and fields_of(s.tail)["finish"] == 1:
            return ""
        return b"".join(self.piece(token) for token in tokens).decode("utf-8", "replace")

    def _check_calls(self, s: Session, before: str, drawn: list[Json], finish: int) -> None:
        """Each call that the reply completes is a record, with the arguments that it spells."""
        tokens = [token for event in drawn for token in span_of(event["body"])]
        after = before + b"".join(self.piece(token) for token in tokens).decode("utf-8", "replace")
        complete = re.findall(r"<tool_call>(.*?)</tool_call>", after, re.DOTALL)
        due = [_called(text) for text in complete[len(re.findall("</tool_call>", before)) :]]
        if finish == 1 and "<tool_call>" in after.rpartition("</tool_call>")[2]:
            due.append(None)  # mended, or no call at all
        told = [event for event in drawn if name_of(event["body"]) in ("ToolUse", "ToolParseFailure")]
        assert len(told) == len(due), (after, told)
        for event, call in zip(told, due, strict=True):
            name, fields = name_of(event["body"]), fields_of(event["body"])
            if call is not None:
                assert (name, fields.get("name")) == ("ToolUse", call[0])
                assert json.loads(fields["arguments"]) == call[1]
            if name == "ToolUse":
                s.calls[event["event_id"]] = self._fresh(fields)

    def _may_generate(self, session: int, max_tokens: int) -> Session | None:
        s = self._live(session)
        if s.questions:
            raise Refused("has an open permission request")
        if not s.tokens:
            raise Refused("has no content")
        if len(s.tokens) >= self.window:
            raise Refused(f"{self.window}")
        return s if max_tokens else None

    def _learn(self, params: Json, digest: int) -> None:
        """One digest for all that shapes a generation besides its input; the seed does not."""
        key = repr({name: value for name, value in params.items() if name != "seed"})
        assert self.digests.setdefault(key, digest) == digest
        assert len(set(self.digests.values())) == len(self.digests)

    def _check_draws(self, s: Session, start: int) -> None:
        params = GenParams(**s.params)
        stages = recipe(params)
        stream = s.tokens
        for at in range(start, len(stream)):
            bits = None if stages.greedy else draw(params.seed, at)
            assert stream[at] == self.fake.oracle(stream[:at], bits, stages), at

    # --- what is remembered ---------------------------------------------------------------------------------------

    def _next(self) -> int:
        return max([0, *self.sessions, *self.purged]) + 1

    def _child(self, parent: Session, at: int, params: Json) -> Session:
        return Session(
            self._next(),
            parent.params if params is None else params,
            parent.id,
            at,
            parent.log[:at],
            parent.qos,
            parent.invariant,
        )

    def _born(self, child: Session, told: Json, bodies: list[Json]) -> None:
        assert told["session"] == child.id
        for body in bodies:
            self._note(child, body)
            if name_of(body) == "ToolUse":
                call_id = len(child.log) - 1
                child.calls[call_id] = self._fresh(fields_of(body))
            elif name_of(body) == "ToolResult" and fields_of(body)["call_id"] in child.calls:
                child.calls[fields_of(body)["call_id"]]["state"] = 2
        self.sessions[child.id] = child

    @staticmethod
    def _fresh(use: Json) -> Json:
        return {**use, "state": 0, "cancel_requested": False, "lease_deadline_unix_ms": None, "late_effects": 0}

    def _commits(self, session: int, body: Json):
        s = self.sessions[session]

        def see(told):
            event = told["event"]
            self._bump(s)
            self._match(event, {"event_id": len(s.log), "epoch": self._epoch(s), "ts_unix_ms": ..., "body": body})
            s.log.append(event)

        return "Committed", see

    def _note(self, s: Session, body: Json) -> None:
        """A record that was not told yet: `settle` fills in its time and tokens when they are read."""
        if s.log and s.id in self.sessions:
            self._bump(s)
        epoch = self._epoch(s) if s.id in self.sessions else 1
        s.log.append({"event_id": len(s.log), "epoch": epoch, "ts_unix_ms": ..., "body": body})

    def _bump(self, s: Session) -> None:
        if not s.current:
            s.current = True
            epoch = s.log[-1]["epoch"] + 1
            s.log.append({"event_id": len(s.log), "epoch": epoch, "ts_unix_ms": ..., "body": "EpochBump"})

    @staticmethod
    def _epoch(s: Session) -> int:
        return s.log[-1]["epoch"]

    def _take(self, s: Session, events: list[Json]) -> None:
        for event in events:
            if event["body"] == "EpochBump":
                assert not s.current
                s.current = True
                assert event["epoch"] == self._epoch(s) + 1
            else:
                assert event["epoch"] == self._epoch(s)
            assert event["event_id"] == len(s.log)
            s.log.append(event)

    def settle(self, session: int, events: list[Json]) -> None:
        """The whole log as read: what was not told yet is filled in, everything else must be as it was."""
        s = self.sessions[session]
        assert len(events) == len(s.log), (session, [name_of(e["body"]) for e in events])
        for place, event in enumerate(events):
            self._match(event, s.log[place])
        s.log = events

    def unsettled(self) -> list[int]:
        """Sessions whose log holds something that was not told yet."""
        return [s.id for s in self.sessions.values() if any(event["ts_unix_ms"] is ... for event in s.log)]

    def _match(self, told: Json, expected: Json) -> None:
        if expected is ...:
            return
        if isinstance(expected, dict):
            assert isinstance(told, dict), (told, expected)
            assert told.keys() == expected.keys()
            for key, value in expected.items():
                self._match(told[key], value)
        else:
            assert told == expected, (told, expected)

    def _same(self, told: Json, expected: Json) -> None:
        assert told == expected, f"told {told}\nexpected {expected}"

    def _below(self, session: int) -> set[int]:
        below: set[int] = set()
        for child in [s.id for s in self.sessions.values() if s.parent == session]:
            below |= {child, *self._below(child)}
        return below

    def _summary(self, s: Session) -> Json:
        return {
            "id": s.id,
            "parent": s.parent,
            "fork_at": s.fork_at,
            "title": s.title,
            "archived": s.archived,
            "meta_version": s.version,
            "generation": 0,
            "events": len(s.log),
            "tokens": len(s.tokens),
            "open_tool_calls": len(s.open_calls),
        }
