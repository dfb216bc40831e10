"""Every method by a table: what it sends, and what it makes of the answer."""

from dataclasses import dataclass
from typing import Any

import pytest
from superfluid_client import Client, Event, Sampling, Session, ToolCall, drop_events, replace_events

from superfluid.protocol import jsonform
from superfluid.protocol.requests import Request
from tests.pyclient.said import PARAMS, event, inspection, message

SEEDED = {**PARAMS, "seed": 5}
GREEDY = {"temperature": 0.0, "top_p": 1.0, "min_p": 0.0, "top_k": 0, "seed": 0}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}
TOOL_TEXT = '{"type": "function", "function": {"name": "f", "parameters": {}}}'


@dataclass(frozen=True)
class Is:
    """A session of this id and this sampling."""

    id: int
    params: dict[str, Any]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Session) and (other.id, other.sampling.to_wire()) == (self.id, self.params)


def committed(id, kind="Message", **fields):
    fields = fields or {"role": 1, "text": "hi", "span": [1]}
    return {"Committed": {"event": event(id, kind, **fields)}}


def happened(id, kind="Message", **fields):
    fields = fields or {"role": 1, "text": "hi", "span": [1]}
    return Event(id, kind, fields, 1000 + id, 1)


def read(cursor, *events):
    return {"Read": {"session": 1, "cursor": cursor}}, {"Events": {"events": list(events)}}


OF_CLIENT = {
    "call": (lambda c: c.call("List"), [({"List": None}, {"Sessions": {"ids": [1]}})], ("Sessions", {"ids": [1]})),
    "call of a unit": (lambda c: c.call("GcMedia"), [({"GcMedia": None}, "Ack")], ("Ack", None)),
    "call with fields": (
        lambda c: c.call("Cancel", {"session": 4}),
        [({"Cancel": {"session": 4}}, "Cancelling")],
        ("Cancelling", None),
    ),
    "session": (
        lambda c: c.session(Sampling.greedy()),
        [({"Create": {"parent": None, "params": GREEDY}}, {"Created": {"session": 8}})],
        Is(8, GREEDY),
    ),
    "session with a system message": (
        lambda c: c.session(Sampling.greedy(), system="Be brief."),
        [
            ({"Create": {"parent": None, "params": GREEDY}}, {"Created": {"session": 8}}),
            ({"AppendMessage": {"session": 8, "role": 0, "text": "Be brief."}}, committed(1)),
        ],
        Is(8, GREEDY),
    ),
    "session with tools": (
        lambda c: c.session(Sampling.greedy(), system="Be brief.", tools=[TOOL, "{}"]),
        [
            ({"Create": {"parent": None, "params": GREEDY}}, {"Created": {"session": 8}}),
            ({"AppendSystem": {"session": 8, "text": "Be brief.", "tools": [TOOL_TEXT, "{}"]}}, committed(1)),
        ],
        Is(8, GREEDY),
    ),
    "get": (lambda c: c.get(1), [({"Inspect": {"session": 1}}, inspection())], Is(1, PARAMS)),
    "inspect": (
        lambda c: c.inspect(1),
        [({"Inspect": {"session": 1}}, inspection())],
        {"summary": {"id": 1}, "params": PARAMS},
    ),
    "sessions": (
        lambda c: c.sessions(),
        [({"Sessions": {"include_archived": False}}, {"SessionList": {"sessions": [{"id": 1}]}})],
        [{"id": 1}],
    ),
    "sessions with the archived": (
        lambda c: c.sessions(include_archived=True),
        [({"Sessions": {"include_archived": True}}, {"SessionList": {"sessions": []}})],
        [],
    ),
    "tree": (lambda c: c.tree(), [({"Tree": None}, {"Tree": {"nodes": [[1, None, 0]]}})], [[1, None, 0]]),
    "complete": (
        lambda c: c.complete("def f(", "return x"),
        [
            (
                {"Complete": {"prefix": "def f(", "suffix": "return x", "mode": 0, "max_tokens": 64}},
                {"Completion": {"text": "x):", "tokens": [1], "cached": False, "expired": False}},
            )
        ],
        {"text": "x):", "tokens": [1], "cached": False, "expired": False},
    ),
    "metrics": (lambda c: c.metrics(), [({"Metrics": None}, {"Text": {"text": "up 1"}})], "up 1"),
    "set_background_rate": (
        lambda c: c.set_background_rate(4),
        [({"SetBackgroundRate": {"divisor": 4}}, "Ack")],
        None,
    ),
}

OF_SESSION = {
    "say": (
        lambda s: s.say("assistant", "hi"),
        [({"AppendMessage": {"session": 1, "role": 2, "text": "hi"}}, committed(3))],
        happened(3),
    ),
    "system": (
        lambda s: s.system("hi"),
        [({"AppendMessage": {"session": 1, "role": 0, "text": "hi"}}, committed(3))],
        happened(3),
    ),
    "user": (
        lambda s: s.user("hi"),
        [({"AppendMessage": {"session": 1, "role": 1, "text": "hi"}}, committed(3))],
        happened(3),
    ),
    "assistant": (
        lambda s: s.assistant("hi"),
        [({"AppendMessage": {"session": 1, "role": 2, "text": "hi"}}, committed(3))],
        happened(3),
    ),
    "declare": (
        lambda s: s.declare(tools=[TOOL]),
        [({"AppendSystem": {"session": 1, "text": None, "tools": [TOOL_TEXT]}}, committed(1))],
        happened(1),
    ),
    "append_tokens": (
        lambda s: s.append_tokens((5, 6), "five six"),
        [
            (
                {"Append": {"session": 1, "text": "five six", "span": [5, 6]}},
                committed(3, "Appended", text="five six", span=[5, 6]),
            )
        ],
        happened(3, "Appended", text="five six", span=[5, 6]),
    ),
    "tool_result": (
        lambda s: s.tool_result(ToolCall(4, "f", "{}"), "sunny"),
        [({"AppendToolResult": {"session": 1, "call_id": 4, "content": "sunny"}}, committed(5))],
        happened(5),
    ),
    "tool_result by id": (
        lambda s: s.tool_result(4, "sunny"),
        [({"AppendToolResult": {"session": 1, "call_id": 4, "content": "sunny"}}, committed(5))],
        happened(5),
    ),
    "image": (
        lambda s: s.image("ab12", before="Look:"),
        [
            (
                {"AppendImage": {"session": 1, "role": 1, "blob": "ab12", "pre_text": "Look:", "post_text": ""}},
                committed(3),
            )
        ],
        happened(3),
    ),
    "cancel": (lambda s: s.cancel(), [({"Cancel": {"session": 1}}, "Cancelling")], True),
    "cancel with nothing to cancel": (
        lambda s: s.cancel(),
        [({"Cancel": {"session": 1}}, {"Err": {"message": "session 1 has no generation in flight"}})],
        False,
    ),
    "head": (lambda s: s.head, [read(0, event(0, "EpochBump"), message(1, 1, "hi"))], 2),
    "head again": (
        lambda s: (s.head, s.head, s.head),
        [read(0, message(1, 1, "hi")), read(2, event(2, "EpochBump")), read(3)],
        (2, 3, 3),
    ),
    "fork": (
        lambda s: s.fork(),
        [
            read(0, message(1, 1, "hi")),
            ({"Fork": {"session": 1, "at_event": 2, "params": None}}, {"Created": {"session": 9}}),
        ],
        Is(9, PARAMS),
    ),
    "fork with a seed": (
        lambda s: s.fork(3, seed=5),
        [({"Fork": {"session": 1, "at_event": 3, "params": SEEDED}}, {"Created": {"session": 9}})],
        Is(9, SEEDED),
    ),
    "fork with a sampling and a seed": (
        lambda s: s.fork(3, seed=5, sampling=Sampling.greedy()),
        [
            (
                {"Fork": {"session": 1, "at_event": 3, "params": {**GREEDY, "seed": 5}}},
                {"Created": {"session": 9}},
            )
        ],
        Is(9, {**GREEDY, "seed": 5}),
    ),
    "fork_after": (
        lambda s: s.fork_after(happened(3), seed=5),
        [({"Fork": {"session": 1, "at_event": 4, "params": SEEDED}}, {"Created": {"session": 9}})],
        Is(9, SEEDED),
    ),
    "rebase": (
        lambda s: s.rebase([drop_events(1, 3), replace_events(4, 6, "user", "new")]),
        [
            (
                {
                    "Rebase": {
                        "session": 1,
                        "edits": [
                            {"Drop": {"from": 1, "to": 3}},
                            {"Replace": {"from": 4, "to": 6, "role": 1, "text": "new"}},
                        ],
                        "params": None,
                    }
                },
                {"Created": {"session": 9}},
            )
        ],
        Is(9, PARAMS),
    ),
    "edit": (
        lambda s: s.edit(happened(3), "new"),
        [
            read(0, message(3, 1, "hi"), message(4, 2, "ho")),
            (
                {
                    "Rebase": {
                        "session": 1,
                        "edits": [{"Replace": {"from": 3, "to": 5, "role": 1, "text": "new"}}],
                        "params": None,
                    }
                },
                {"Created": {"session": 9}},
            ),
        ],
        Is(9, PARAMS),
    ),
    "edit by id, into another role": (
        lambda s: s.edit(3, "new", role="system"),
        [
            read(3, message(3, 1, "hi")),
            read(0, message(3, 1, "hi")),
            (
                {
                    "Rebase": {
                        "session": 1,
                        "edits": [{"Replace": {"from": 3, "to": 4, "role": 0, "text": "new"}}],
                        "params": None,
                    }
                },
                {"Created": {"session": 9}},
            ),
        ],
        Is(9, PARAMS),
    ),
    "trim": (
        lambda s: s.trim(3),
        [({"Trim": {"session": 1, "to_event": 3}}, {"Created": {"session": 9}})],
        Is(9, PARAMS),
    ),
    "events": (
        lambda s: s.events(3),
        [read(3, message(3, 1, "hi"), event(4, "EpochBump"))],
        [happened(3), Event(4, "EpochBump", {}, 1004, 1)],
    ),
    "event": (lambda s: s.event(3), [read(3, message(3, 1, "hi"), event(4, "EpochBump"))], happened(3)),
    "inspect": (
        lambda s: s.inspect(),
        [({"Inspect": {"session": 1}}, inspection())],
        {"summary": {"id": 1}, "params": PARAMS},
    ),
    "open_tool_calls": (
        lambda s: s.open_tool_calls(),
        [({"OpenToolCalls": {"session": 1}}, {"ToolCalls": {"calls": [[4, "f", "{}"]]}})],
        [ToolCall(4, "f", "{}")],
    ),
    "pin": (
        lambda s: s.pin(1.5),
        [({"Pin": {"session": 1, "ttl_ms": 1500}}, {"Pinned": {"deadline_unix_ms": 99}})],
        99,
    ),
    "set_qos": (
        lambda s: s.set_qos(3),
        [
            (
                {"SetQos": {"session": 1, "class": 3, "batch_invariant": False}},
                {"Committed": {"event": event(3, "QosSet", **{"class": 3, "batch_invariant": False})}},
            )
        ],
        Event(3, "QosSet", {"class": 3, "batch_invariant": False}, 1003, 1),
    ),
    "set_meta": (
        lambda s: s.set_meta(title="Rivers"),
        [
            ({"Inspect": {"session": 1}}, inspection(meta_version=6)),
            (
                {"SetMeta": {"session": 1, "expected_version": 6, "title": "Rivers", "archived": None}},
                {"Meta": {"version": 7}},
            ),
        ],
        7,
    ),
    "purge": (
        lambda s: s.purge(),
        [
            ({"Inspect": {"session": 1}}, inspection(generation=2)),
            (
                {"Purge": {"session": 1, "expected_generation": 2, "mode": "Cascade"}},
                {"Purged": {"sessions": [3, 1]}},
            ),
        ],
        [3, 1],
    ),
    "purge alone": (
        lambda s: s.purge(cascade=False),
        [
            ({"Inspect": {"session": 1}}, inspection(generation=0)),
            ({"Purge": {"session": 1, "expected_generation": 0, "mode": "Reroot"}}, {"Purged": {"sessions": [1]}}),
        ],
        [1],
    ),
}
IN_TESTS_OF_THEIR_OWN = {"stream", "generate", "messages", "health"}


@pytest.mark.parametrize("case", OF_CLIENT.values(), ids=OF_CLIENT)
def test_a_client_asks_and_answers(client, web, case):
    act, script, result = case
    for request, answer in script:
        web.rpc(request, answer)
    assert result == act(client)
    assert web.bodies == [request for request, _ in script]


@pytest.mark.parametrize("case", OF_SESSION.values(), ids=OF_SESSION)
def test_a_session_asks_and_answers(session, web, case):
    act, script, result = case
    for request, answer in script:
        web.rpc(request, answer)
    assert result == act(session)
    assert web.bodies == [request for request, _ in script]


@pytest.mark.parametrize("case", [*OF_CLIENT.values(), *OF_SESSION.values()], ids=[*OF_CLIENT, *OF_SESSION])
def test_the_daemon_understands_it(case):
    _, script, _ = case
    for request, _ in script:
        assert type(jsonform.from_json(Request, request)).__name__ in request


@pytest.mark.parametrize(("thing", "table"), [(Client, OF_CLIENT), (Session, OF_SESSION)])
def test_no_method_is_left_out(thing, table):
    public = {name for name in vars(thing) if not name.startswith("_")}
    assert public - {name.split()[0] for name in table} <= IN_TESTS_OF_THEIR_OWN


def test_only_a_message_is_edited(session):
    with pytest.raises(ValueError, match="event 4 is a Generated"):
        session.edit(Event(4, "Generated", {}), "new")


def test_a_role_has_a_known_name(session):
    with pytest.raises(ValueError, match="unknown role 'bot'; one of system, user"):
        session.say("bot", "hi")


def test_a_seed_is_drawn_unless_given():
    seeds = {Sampling().seed for _ in range(8)}
    assert len(seeds) == 8
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert Sampling(seed=4).with_seed(5) == Sampling(seed=5)
    assert Sampling.from_wire(PARAMS).to_wire() == PARAMS


def test_arguments_of_a_call_are_json():
    assert ToolCall(1, "f", '{"city": "Paris"}').json() == {"city": "Paris"}


def test_events_can_be_kept_in_sets():
    assert len({happened(3), happened(3), happened(4)}) == 2
