"""A life of sessions, told over one transport: every request, so that every response and record comes of it."""

from __future__ import annotations

import time
from contextlib import closing
from typing import Any

from tests.acceptance.normal import Normal
from tests.acceptance.scene import TOOLS
from tests.acceptance.talks import Connected, Talk, fields_of, name_of
from tests.durability.house import until

Json = Any

GREEDY = {"temperature": 0.0, "top_p": 1.0, "min_p": 0.0, "top_k": 0, "seed": 0}
ARGUMENTS = '{"city":"Bern"}'
PAYLOAD = '{"path": "a.py", "diff": "-1", "title": "t", "url": "u", "content": "c", "severity": "e", "message": "m"}'
SAMPLED = {"temperature": 0.8, "top_p": 0.95, "min_p": 0.05, "top_k": 40, "seed": (1 << 64) - 1}


class Story:
    """Says requests over `talk` and keeps what was said; `asked` and `told` are raw, `steps` the order of it."""

    def __init__(self, talk: Talk) -> None:
        self.talk = talk
        self.asked: list[Json] = []
        self.told: list[Json] = []
        self._steps: list[tuple[str, int, list[Json]]] = []
        self._sessions: list[int] = []
        self._logs: dict[int, list[Json]] = {}
        self._subs: dict[int, int] = {}
        self._earlier: list[tuple[dict[int, int], list[Json]]] = []
        """subscriptions that ended with an earlier daemon, and their frames"""

    # --- what the steps of a story are made of ---------------------------------------------------------------------

    def say(self, name: str, /, **fields: Json) -> Json:
        """The response to a request, whatever it is; it becomes part of the transcript."""
        request = {name: fields} if fields else name
        if name == "Purge":
            self._keep(fields["session"])
            for node in fields_of(self.talk.ask("Tree"))["nodes"]:
                self._keep(node[0])
        reply = self.talk.ask(request)
        self.asked.append(request)
        self.told.append(reply)
        if name_of(reply) == "Created":
            self._sessions.append(fields_of(reply)["session"])
        elif name_of(reply) == "Subscribed":
            self._subs[fields_of(reply)["sub"]] = fields["session"]
        self._steps.append((name, fields.get("session", 0), [reply]))
        return reply

    def ask(self, name: str, response: str, /, **fields: Json) -> Json:
        """The fields of a response of this kind."""
        reply = self.say(name, **fields)
        assert name_of(reply) == response, (name, fields, reply)
        return fields_of(reply)

    def refused(self, name: str, /, **fields: Json) -> str:
        return self.ask(name, "Err", **fields)["message"]

    def create(self, parent: int | None = None, params: Json = GREEDY) -> int:
        return self.ask("Create", "Created", parent=parent, params=params)["session"]

    def commit(self, name: str, record: str, /, **fields: Json) -> Json:
        """The event that a request commits, which is a record of this kind."""
        event = self.ask(name, "Committed", **fields)["event"]
        assert name_of(event["body"]) == record, event
        return event

    def generate(self, session: int, max_tokens: int) -> Json:
        """The fields of the summary."""
        self.asked.append({"Generate": {"session": session, "max_tokens": max_tokens}})
        replies = list(self.talk.generate(session, max_tokens))
        self.told += replies
        self._steps.append(("Generate", session, replies))
        if name_of(replies[-1]) == "Generated":
            assert [fields_of(reply)["event"] for reply in replies[:-1]] == fields_of(replies[-1])["events"]
        return fields_of(replies[-1])

    def cancelled(self, session: int, max_tokens: int) -> Json:
        """A generation that another connection cancels once it has drawn something."""
        self.asked.append({"Generate": {"session": session, "max_tokens": max_tokens}})
        with closing(self.talk.generate(session, max_tokens)) as replies, type(self.talk)(self.talk.web) as other:
            got = [next(replies)]
            assert name_of(got[0]) == "Delta", got
            busy = other.ask({"AppendMessage": {"session": session, "role": 1, "text": "Stop."}})
            told = other.ask({"Cancel": {"session": session}})
            got += replies
        self.asked.append({"Cancel": {"session": session}})
        self.told += [busy, told, *got]
        summary = fields_of(got[-1])
        self._steps.append(("Cancel", session, [busy, told]))
        return summary

    def subscribe(self, session: int, cursor: int, provisional: bool) -> int | None:
        """The subscription; None over a transport that has none."""
        if not self.talk.streams:
            return None
        return self.ask("Subscribe", "Subscribed", session=session, cursor=cursor, provisional=provisional)["sub"]

    def log(self, session: int) -> list[Json]:
        return self.ask("Read", "Events", session=session, cursor=0)["events"]

    def _keep(self, session: int) -> None:
        reply = self.talk.ask({"Read": {"session": session, "cursor": 0}})
        if name_of(reply) == "Events":
            self._logs[session] = fields_of(reply)["events"]

    # --- what is left of it ---------------------------------------------------------------------------------------

    def transcript(self) -> list[Json]:
        """Every step, normalised: what another transport must have told too."""
        for session in self._sessions:
            self._keep(session)
        self._normal = normal = Normal(self._sessions, self._logs)
        return [
            [name, normal.deltas(session, replies)]
            if name == "Generate" and name_of(replies[-1]) == "Generated"
            else [name, [normal.response(session, reply) for reply in replies]]
            for name, session, replies in self._steps
            if name not in ("Subscribe", "Unsubscribe")
        ]

    def _chapters(self) -> list[tuple[dict[int, int], list[Json]]]:
        return [*self._earlier, (self._subs, self.talk.subscribed)]

    def subscriptions(self) -> list[Json]:
        """What each subscription was told, normalised."""
        return [
            self._normal.subscription(sub, session, frames)
            for subs, frames in self._chapters()
            for sub, session in subs.items()
        ]

    def frames(self) -> list[Json]:
        """Everything that was told, raw."""
        return [*self.told, *(frame for _, frames in self._chapters() for frame in frames)]

    def once_more(self, talk: Talk) -> None:
        """Go on over a connection to the next daemon, which counts subscriptions from 1 again."""
        self._earlier.append((self._subs, self.talk.subscribed))
        self._subs = {}
        self.talk.close()
        self.talk = talk


def conversation(story: Story) -> tuple[int, int | None]:
    """A turn, cut and continued, followed from its beginning; the session, and the subscription that goes on."""
    session = story.create(params=SAMPLED)
    story.commit("AppendSystem", "Message", session=session, text="You are terse.", tools=[])
    everything = story.subscribe(session, 0, True)
    story.commit("AppendMessage", "Message", session=session, role=1, text="Name three rivers.")
    first = story.generate(session, 12)
    assert (first["tokens_generated"], first["finish"]) == (12, 2)
    rest = story.generate(session, 5)
    assert (rest["tokens_generated"], rest["finish"]) == (5, 2)
    assert story.generate(session, 0) == {"events": [], "tokens_generated": 0, "finish": 0, "warm_prefix": 0}
    log = story.log(session)
    assert story.ask("Read", "Events", session=session, cursor=3)["events"] == log[3:]
    assert story.ask("Read", "Events", session=session, cursor=len(log) + 5)["events"] == []
    late = story.subscribe(session, len(log) - 1, False)
    if everything is not None and isinstance(story.talk, Connected):
        story.talk.until_event(late, len(log) - 1)
        story.ask("Unsubscribe", "Unsubscribed", sub=late)
        story.talk.until_ended(late)
        story.talk.until_event(everything, len(log) - 1)
    return session, everything


def appends(story: Story) -> None:
    """Everything that puts something on the input, and what is refused."""
    session = story.create()
    text = story.commit("Append", "Appended", session=session, text="The sky is", span=[])
    assert text["body"]["Appended"]["span"]
    story.commit("Append", "Appended", session=session, text=None, span=[20, 21])
    story.commit("Append", "Appended", session=session, text="shown", span=[22])
    for kind in range(1, 8):
        block = story.commit("AppendBlock", "Block", session=session, role=1, kind=kind, payload=PAYLOAD)
        assert bool(block["body"]["Block"]["span"]) is (kind not in (4, 7))
    assert "unknown block kind 8" in story.refused("AppendBlock", session=session, role=1, kind=8, payload="")
    assert "unknown message role 4" in story.refused("AppendBlock", session=session, role=4, kind=1, payload="")
    tokens = story.ask("Inspect", "Inspection", session=session)["inspection"]["tokens"]
    spans = [fields_of(event["body"]).get("span", []) for event in story.log(session)]
    assert tokens == [token for span in spans for token in span]
    assert "unknown message role 3" in story.refused("AppendMessage", session=session, role=3, text="x")
    assert story.refused("Append", session=session, text=None, span=[]).startswith("protocol: ")
    assert story.refused("AppendSystem", session=session, text=None, tools=[]).startswith("protocol: ")
    assert "AppendSystem must come before" in story.refused("AppendSystem", session=session, text="x", tools=[])
    assert story.refused("Read", session=1 << 40, cursor=0).startswith(f"unknown session {1 << 40}")


def branches(story: Story, session: int) -> None:
    """Fork, rebase, trim, and a child that inherits nothing."""
    log = story.log(session)
    whole = story.ask("Fork", "Created", session=session, at_event=len(log), params=None)["session"]
    assert story.log(whole)[: len(log)] == log
    head = story.ask("Fork", "Created", session=session, at_event=3, params=GREEDY)["session"]
    story.generate(head, 4)
    edits = [{"Drop": {"from": 1, "to": 2}}, {"Replace": {"from": 2, "to": 3, "role": 1, "text": "Name two lakes."}}]
    edited = story.ask("Rebase", "Created", session=session, edits=edits, params=None)["session"]
    story.log(edited)
    story.ask("Rebase", "Created", session=session, edits=edits[:1], params=GREEDY)
    story.ask("Trim", "Created", session=session, to_event=2)
    story.ask("Trim", "Created", session=whole, to_event=len(log) + 1)
    story.log(story.create(parent=session))
    for edits, reason in [
        ([], "no edits"),
        ([{"Drop": {"from": 0, "to": 2}}], "never include Created"),
        ([{"Drop": {"from": 2, "to": 2}}], "empty range"),
        ([{"Drop": {"from": 1, "to": 3}}, {"Drop": {"from": 2, "to": 3}}], "must be sorted and non-overlapping"),
    ]:
        assert reason in story.refused("Rebase", session=session, edits=edits, params=None)
    short = story.create()
    assert "1..=1" in story.refused("Fork", session=short, at_event=2, params=None)
    assert "1..=1" in story.refused("Trim", session=short, to_event=0)


def keeping(story: Story, session: int) -> None:
    """Lists, metadata, classes, pins, permissions, cancels."""
    assert story.ask("SetMeta", "Meta", session=session, expected_version=0, title="Rivers", archived=None) == {
        "version": 1
    }
    assert (
        story.ask("SetMeta", "Meta", session=session, expected_version=1, title=None, archived=True)["version"] == 2
    )
    assert "version" in story.refused("SetMeta", session=session, expected_version=0, title="x", archived=None)
    for archived in (False, True):
        listed = story.ask("Sessions", "SessionList", include_archived=archived)["sessions"]
        assert (session in [entry["id"] for entry in listed]) is archived
    assert session in story.ask("List", "Sessions")["ids"]
    assert session not in [node[0] for node in story.ask("Tree", "Tree")["nodes"]]
    story.commit("SetQos", "QosSet", **{"session": session, "class": 1, "batch_invariant": True})
    assert "unknown QoS class 4" in story.refused(
        "SetQos", **{"session": session, "class": 4, "batch_invariant": False}
    )
    assert story.say("SetBackgroundRate", divisor=2) == "Ack"
    assert story.say("SetBackgroundRate", divisor=0) == "Ack"
    assert story.ask("Pin", "Pinned", session=session, ttl_ms=60_000)["deadline_unix_ms"] > 1_700_000_000_000
    assert story.ask("Pin", "Pinned", session=session, ttl_ms=0) == {"deadline_unix_ms": 0}
    story.ask("Inspect", "Inspection", session=session)
    assert "no generation in flight" in story.refused("Cancel", session=session)
    for granted in (False, True):
        question = story.commit("RequestPermission", "PermissionRequest", session=session, call_id=0, text="May I?")
        assert "open permission request" in story.generate(session, 4)["message"]
        answer = {"session": session, "request_id": question["event_id"], "granted": granted}
        story.commit("RespondPermission", "PermissionResponse", **answer)
        assert "is unknown or already answered" in story.refused("RespondPermission", **answer)
    assert story.generate(session, 2)["tokens_generated"] == 2
    other = story.create()
    assert "has no content" in story.generate(other, 4)["message"]
    story.commit("AppendMessage", "Message", session=other, role=1, text="Tell me everything.")
    assert story.cancelled(other, 1500)["finish"] == 4
    spoilt = story.create()
    story.commit("Append", "Appended", session=spoilt, text=None, span=[4_000_000_000])
    assert "generation failed: engine lane fault (code 2)" in story.generate(spoilt, 4)["message"]
    assert story.log(spoilt)[-1]["body"]["Generated"]["finish"] == 5


def ends(story: Story) -> None:
    """Purges: one that takes the children along, one that cuts them loose; and what follows the purged."""
    root = story.create()
    story.commit("AppendMessage", "Message", session=root, role=1, text="Kept by the child.")
    follower = story.subscribe(root, 1, False)
    child = story.ask("Fork", "Created", session=root, at_event=2, params=None)["session"]
    grandchild = story.ask("Fork", "Created", session=child, at_event=2, params=None)["session"]
    assert "generation 0" in story.refused("Purge", session=root, expected_generation=1, mode="Reroot")
    assert story.ask("Purge", "Purged", session=root, expected_generation=0, mode="Reroot") == {"sessions": [root]}
    if follower is not None and isinstance(story.talk, Connected):
        story.talk.until_ended(follower)
    assert name_of(story.log(child)[-1]["body"]) == "Rerooted"
    assert "was purged" in story.refused("Read", session=root, cursor=0)
    purged = story.ask("Purge", "Purged", session=child, expected_generation=0, mode="Cascade")["sessions"]
    assert purged == [grandchild, child]


def calls(story: Story) -> None:
    """Tool calls: made, answered, failed, cancelled, answered too late, spelled badly."""
    session = story.create()
    story.commit("AppendSystem", "Message", session=session, text=None, tools=TOOLS)
    assert "tool 1 is not a function declaration" in story.refused(
        "AppendSystem", session=story.create(), text="x", tools=[TOOLS[0], "[]"]
    )
    follower = story.subscribe(session, 0, True)
    story.commit("AppendMessage", "Message", session=session, role=1, text="Is it raining?")
    summary = story.generate(session, 500)
    assert summary["finish"] == 1, summary
    (call,) = [event for event in summary["events"] if name_of(event["body"]) == "ToolUse"]
    assert call["body"]["ToolUse"] == {"name": "get_weather", "arguments": ARGUMENTS}
    assert {event["body"]["Generated"]["channel"] for event in summary["events"] if event is not call} == {0, 1, 2}
    id = call["event_id"]
    waiting = [[id, "get_weather", ARGUMENTS]]
    assert story.ask("OpenToolCalls", "ToolCalls", session=session)["calls"] == waiting
    inspection = story.ask("Inspect", "Inspection", session=session)["inspection"]
    assert (inspection["open_tool_calls"], inspection["summary"]["open_tool_calls"]) == (waiting, 1)
    asked = story.commit("RequestPermission", "PermissionRequest", session=session, call_id=id, text="May I?")
    story.commit(
        "RespondPermission", "PermissionResponse", session=session, request_id=asked["event_id"], granted=True
    )
    child = story.ask("Fork", "Created", session=session, at_event=id + 1, params=None)["session"]
    assert "belongs to an ancestor" in story.refused("AppendToolResult", session=child, call_id=id, content="rain")
    story.commit("RequestToolCancel", "ToolCancelRequested", session=session, call_id=id)
    story.commit("AppendToolResult", "ToolResult", session=session, call_id=id, content="rain")
    assert "already closed" in story.refused("AppendToolResult", session=session, call_id=id, content="again")
    reply = story.generate(session, 500)
    said = [fields_of(event["body"]) for event in reply["events"]]
    assert "".join(fields["text"] for fields in said if fields["channel"] == 0).strip() == "Yes, it rains."
    story.commit("AppendMessage", "Message", session=session, role=1, text="Twice?")
    made = [event for event in story.generate(session, 500)["events"] if name_of(event["body"]) == "ToolUse"]
    first, second = (event["event_id"] for event in made)
    for id, outcome in [(first, 1), (second, 2)]:
        fields = {"session": session, "call_id": id, "outcome": outcome, "note": "It went wrong."}
        story.commit("AppendToolOutcome", "ToolOutcome", **fields)
        assert "already closed" in story.refused("AppendToolOutcome", **fields)
        assert "already terminal" in story.refused("AppendToolResult", session=session, call_id=id, content="Grüße")
    entries = story.ask("Ledger", "Ledger", session=session)["entries"]
    assert [entry["state"] for _, entry in entries] == [2, 3, 6]
    assert [entry["late_effects"] for _, entry in entries] == [0, 1, 1]
    story.commit("AppendMessage", "Message", session=session, role=1, text="Say it badly.")
    bad = story.generate(session, 500)["events"]
    assert "ToolParseFailure" in [name_of(event["body"]) for event in bad]
    log = story.log(session)
    copy = story.ask("Rebase", "Created", session=session, edits=[{"Drop": {"from": 2, "to": 3}}], params=None)[
        "session"
    ]
    story.log(copy)
    if follower is not None and isinstance(story.talk, Connected):
        story.talk.until_event(follower, len(log) - 1)
        story.ask("Unsubscribe", "Unsubscribed", sub=follower)
        story.talk.until_ended(follower)


def leases(story: Story) -> None:
    """Where calls are leased for a moment: what becomes of a result that comes later."""
    session = story.create()
    story.commit("AppendSystem", "Message", session=session, text="Use tools.", tools=TOOLS[:1])
    for question in ("Is it raining?", "Twice?"):
        story.commit("AppendMessage", "Message", session=session, role=1, text=question)
        made = [event for event in story.generate(session, 500)["events"] if name_of(event["body"]) == "ToolUse"]
        id = made[0]["event_id"]
        deadline = story.log(session)[id + 1]["body"]["ToolLease"]["deadline_unix_ms"]
        until(lambda deadline=deadline: time.time_ns() // 1_000_000 > deadline + 10)
        assert "lease" in story.refused("AppendToolResult", session=session, call_id=id, content="rain")
        assert "already terminal" in story.refused("AppendToolResult", session=session, call_id=id, content="rain")
    story.generate(session, 2)
    log = story.log(session)
    reasons = [fields_of(e["body"])["reason"] for e in log if name_of(e["body"]) == "ToolExpired"]
    assert reasons == ["lease expired", "lease expired", "lease elapsed"]
    assert [entry["state"] for _, entry in story.ask("Ledger", "Ledger", session=session)["entries"]] == [5, 5, 5]


def middles(story: Story) -> None:
    """Fill-in-the-middle, metered; log levels; metrics."""
    fields = {"prefix": f"def {story.talk.name}(", "suffix": "):", "mode": 0, "max_tokens": 4}
    first = story.ask("Complete", "Completion", **fields)
    again = story.ask("Complete", "Completion", **fields)
    other = story.ask("Complete", "Completion", **{**fields, "mode": 1})
    assert [one["cached"] for one in (first, again, other)] == [False, True, False]
    assert again["tokens"] == first["tokens"] != other["tokens"]
    assert story.ask("Complete", "Throttled", **fields)["retry_after_ms"] > 0
    assert story.say("SetLogLevel", directive="info") == "Ack"
    assert story.refused("SetLogLevel", directive="=,=").startswith("generation failed: ")
    assert "superfluid_decode_tokens_total" in story.ask("Metrics", "Text")["text"]


def media(story: Story, session: int) -> None:
    """This version takes no media, and says so."""
    for name, fields in [
        ("PutMedia", {"bytes": [0, 255], "mime": "image/png"}),
        ("AppendImage", {"session": session, "role": 1, "blob": "0" * 64, "pre_text": "", "post_text": ""}),
        ("GcMedia", {}),
    ]:
        assert f"does not do {name}" in story.refused(name, **fields)


def after_restart(story: Story, session: int, before: list[Json]) -> None:
    """The daemon was started again: ids and cursors are what they were, and the next write begins an epoch."""
    for cursor in (0, len(before) - 2, len(before)):
        assert story.ask("Read", "Events", session=session, cursor=cursor)["events"] == before[cursor:]
    follower = story.subscribe(session, len(before) - 1, True)
    event = story.commit("AppendMessage", "Message", session=session, role=1, text="And now?")
    assert (event["event_id"], event["epoch"]) == (len(before) + 1, 2)
    assert story.log(session)[len(before)]["body"] == "EpochBump"
    summary = story.generate(session, 6)
    assert (summary["tokens_generated"], summary["finish"]) == (6, 2)
    last = story.log(session)[-1]["event_id"]
    if follower is not None and isinstance(story.talk, Connected):
        story.talk.until_event(follower, last)
        told = [fields_of(f)["event"] for f in story.talk.subscribed if name_of(f) == "SubEvent"]
        assert [event["event_id"] for event in told] == list(range(len(before) - 1, last + 1))
